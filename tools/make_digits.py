"""Make the `digits` data set that the package ships: a stratified part of MNIST.

    python tools/make_digits.py FOLDER_WITH_MNIST

Of every class it takes 1,000 training and 200 test pictures, spread evenly over MNIST's own order (whose
first half of the test set is known to be easier than the second), and keeps that order. Nothing is drawn at
random, so that the same files come out everywhere.
"""

import argparse
import gzip
import hashlib
from pathlib import Path

import torch
from torch import Tensor

from shoal.data.sources.files import find, verify
from shoal.data.sources.formats import decode_idx, encode_idx, read_content

PARTS = {"train": 1_000, "t10k": 200}
"""Pictures of each class, by the first word of MNIST's file names."""
FOLDER = Path(__file__).parent.parent / "src" / "shoal" / "data" / "digits"


def spread_evenly(labels: Tensor, per_class: int) -> Tensor:
    """Indices of `per_class` samples of every class, at equal distances among the samples of that class."""
    chosen: list[Tensor] = []
    for label in labels.unique():
        candidates = (labels == label).nonzero().flatten()
        chosen.append(candidates[torch.arange(per_class) * len(candidates) // per_class])
    return torch.cat(chosen).sort().values


def main() -> None:
    """Read MNIST, check it, choose, write, and print the lines for the catalogue."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mnist", help="folder that holds MNIST's four files, plain or .gz")
    source = parser.parse_args().mnist
    for state in verify("mnist", source):
        if state.problem:
            raise SystemExit(state.problem)
    paths = find("mnist", source)
    FOLDER.mkdir(exist_ok=True)
    for part, per_class in PARTS.items():
        labels_name, images_name = f"{part}-labels-idx1-ubyte", f"{part}-images-idx3-ubyte"
        labels = decode_idx(read_content(paths[labels_name]), dims=1, where=labels_name)
        images = decode_idx(read_content(paths[images_name]), dims=3, where=images_name)
        chosen = spread_evenly(labels, per_class)
        for name, array in ((images_name, images), (labels_name, labels)):
            content = encode_idx(array[chosen])
            (FOLDER / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
            print(f'DataFile("{name}", {len(content):_}, "{hashlib.sha256(content).hexdigest()}"),')


if __name__ == "__main__":
    main()
