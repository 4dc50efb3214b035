"""Check that all workers have the same samples, where a function of the user's own returns them."""

import zlib

from torch import Tensor

from shoal.comm.agree import gather_texts
from shoal.comm.group import Group
from shoal.data.dataset import DataSet
from shoal.errors import DataError


def check_same_data(group: Group, data: DataSet) -> None:
    """Refuse to train if a worker's samples differ from rank 0's; the same error on all workers. A collective.

    Workers divide each batch by the indices of its samples, so a function that draws another order on each of them
    would give some samples twice and others never. Costs one pass over the samples.
    """
    if group.size == 1:
        return
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    mine = [
        f"{name} {len(split)} {_checksum(split.inputs):08x}{_checksum(split.labels):08x}"
        for name, split in splits.items()
        if split is not None
    ]
    rank_0, *others = [text.split("\n") for text in gather_texts(group, "\n".join(mine))]
    for rank, theirs in enumerate(others, 1):
        for ours, other in zip(rank_0, theirs, strict=False):
            if ours != other:
                raise DataError(_difference(data.name, rank, ours.split(), other.split()), HINT)


HINT = (
    "Every worker calls the function, and must get the same samples in the same order: draw random numbers from a "
    "seed, such as numpy.random.default_rng(0) or torch.Generator().manual_seed(0)."
)


def _difference(name: str, rank: int, ours: list[str], theirs: list[str]) -> str:
    (split, number, _), (_, their_number, _) = ours, theirs
    if number != their_number:
        return f"data {name}: rank {rank} has {their_number} samples of {split}, and rank 0 has {number}"
    return f"data {name}: rank {rank} has other samples of {split} than rank 0, or in another order"


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(memoryview(tensor.detach().cpu().contiguous().numpy()))  # pyright: ignore[reportArgumentType]
