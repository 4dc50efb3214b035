"""Tar files of samples, as WebDataset writes them: 0001.jpg and 0001.cls are one sample.

The headers are read once, at the start, so that samples can be read in any order. That also shows a file that is cut
off before the training begins.
"""

import io
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from shoal.data.dataset import Draw
from shoal.data.on_demand.source import Source
from shoal.data.own.files import PICTURES, decoded, has_colour, parts_of, unreadable
from shoal.errors import DataError

LABEL = ".cls"
INPUTS = {*PICTURES, ".npy"}
FORM = (
    "A sample is two files of one name: 0001.jpg (a picture) or 0001.npy, and 0001.cls, the number of its class; the "
    "name ends at the first dot."
)


class Place(NamedTuple):
    """The bytes of an input."""

    shard: Path
    member: str
    offset: int
    size: int

    def read(self) -> io.BytesIO:
        """The bytes as a file; its name is for errors."""
        try:
            with self.shard.open("rb") as file:
                file.seek(self.offset)
                found = io.BytesIO(file.read(self.size))
        except OSError as error:
            raise unreadable(str(self.shard), error) from None
        found.name = str(self)
        return found

    def __str__(self) -> str:
        return f"{self.member} in {self.shard}"


class Shards(Source):
    """The samples of several tar files, one file after the other."""

    def __init__(self, name: str, shards: list[Path], size: int | None, colour: bool | None = None) -> None:
        self.name = name
        self._size = size
        found = [sample for shard in shards for sample in samples_of(shard)]
        if not found:
            raise DataError(f"{shards[0].parent} has tar files without samples", FORM)
        self._places = [place for place, _ in found]
        self.labels = torch.tensor([label for _, label in found])
        first = self._places[0]
        is_picture = Path(first.member).suffix.lower() in PICTURES
        self.colour = colour if colour is not None else is_picture and has_colour(first.read())
        self.signature = str([(shard.name, shard.stat().st_size) for shard in shards])

    def __len__(self) -> int:
        return len(self._places)

    def sample(self, number: int, draw: Draw) -> Any:
        """Decode the member."""
        assert self.labels is not None
        place = self._places[number]
        file = place.read()
        if place.member.lower().endswith(".npy"):
            value: Any = np.load(file, allow_pickle=False)
        else:
            value = decoded(file, self.colour, self._size)
        return value, self.labels[number]

    def place(self, number: int) -> str:
        """The member and its file."""
        return str(self._places[number])


def samples_of(shard: Path) -> list[tuple[Place, int]]:
    """The places of all inputs in a tar file, with their labels."""
    inputs, labels = dict[str, Place](), dict[str, int]()
    names = dict[tuple[str, str], str]()
    end = 0
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                # A name up to its first dot is the key of the sample.
                folder, _, name = member.name.rpartition("/")
                stem, dot, rest = name.partition(".")
                key, suffix = f"{folder}/{stem}", f"{dot}{rest}".lower()
                end = member.offset_data + member.size
                if suffix == LABEL or suffix in INPUTS:
                    kind = "labels" if suffix == LABEL else "inputs"
                    if (key, kind) in names:
                        raise _twice(shard, key.lstrip("/"), kind, names[key, kind], member.name)
                    names[key, kind] = member.name
                if suffix == LABEL:
                    labels[key] = _label(tar, member, shard)
                elif suffix in INPUTS:
                    inputs[key] = Place(shard, member.name, member.offset_data, member.size)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(
            f"{shard} cannot be read after sample {max(0, len(inputs) - 1):,}: {error}",
            "It is damaged, cut off or compressed: copy it again, or write it as plain tar.",
        ) from None
    # A tar file ends with blocks of zeros.
    size = shard.stat().st_size
    if size < -(-end // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE + tarfile.BLOCKSIZE:
        raise DataError(
            f"{shard} is cut off after sample {max(0, len(inputs) - 1):,}: it has {size:,} bytes and no end",
            "Copy it again.",
        )
    if without := sorted(inputs.keys() ^ labels.keys()):
        raise DataError(f"{shard}: sample {without[0].lstrip('/')} has an input or a label, not both", FORM)
    return [(place, labels[key]) for key, place in inputs.items()]


def _twice(shard: Path, key: str, kind: str, first: str, second: str) -> DataError:
    return DataError(
        f"{shard}: sample {key} has two {kind}, {first} and {second}",
        "In a tar file each sample needs a name of its own: one input and one label.",
    )


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo, shard: Path) -> int:
    file = tar.extractfile(member)
    text = b"" if file is None else file.read(100)
    if not text.strip().isdigit():
        raise DataError(f"{member.name} in {shard} holds {text[:20]!r}, and no number of a class", FORM)
    return int(text)


def shard_sources(path: Path, name: str, size: int | None) -> dict[str, Source]:
    """FOLDER/*.tar, or FOLDER/train/*.tar and FOLDER/test/*.tar."""
    parts = {split: tars(folder) for split, folder in parts_of(path).items()}
    train = Shards(name, parts.pop("train"), size)
    others = {split: Shards(name, shards, size, train.colour) for split, shards in parts.items()}
    return {"train": train, **others}


def has_tars(folder: Path) -> bool:
    """Whether a folder has tar files, compressed or not."""
    return any(folder.glob("*.tar")) or bool(_compressed(folder))


def tars(folder: Path) -> list[Path]:
    """The tar files of a folder, in the order of their names."""
    if found := sorted(folder.glob("*.tar")):
        return found
    if compressed := _compressed(folder):
        raise DataError(
            f"{folder} has no .tar file; found {compressed[0].name}: write plain tar",
            "Samples are read in any order, so gunzip, or its like, first.",
        )
    raise DataError(f"{folder} has no .tar file", FORM)


def _compressed(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.tar.*"), *folder.glob("*.tgz")])
