"""The student's samplers in the lab's own training loop, and what they give to each node."""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import asdict
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from shoal.kit.settings import from_plain
from shoal_labs.check.student import with_method, written
from shoal_labs.lab3.own_loop import Way, train_way

SAMPLERS = {"partition": "MySampler", "sampling": "MyRandomSampler"}


def numbers_of(sampler: Any, epoch: int) -> list[int]:
    """What a sampler gives in an epoch; one without set_epoch gives the same in each."""
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    given = [int(index) for index in sampler]
    if not given:
        raise ValueError(f"{type(sampler).__name__} gives no samples in epoch {epoch}")
    return given


def student_sampler(name: str, dataset: Sized, size: int, rank: int, seed: int) -> Any:
    """The student's sampler of one node."""
    kind = with_method(written("sampler", SAMPLERS[name]), "__iter__")
    return kind(dataset, size, rank, True, seed)


class EpochSampler:
    """A student's sampler as the loop calls one: an epoch has as many samples of each node as an equal division."""

    def __init__(self, name: str, dataset: Sized, size: int, rank: int, seed: int) -> None:
        self._own = student_sampler(name, dataset, size, rank, seed)
        self._most = -(-len(dataset) // size)
        self._numbers: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        """Take the numbers of the epoch, once: a sampler may give others when it is asked again."""
        self._numbers = numbers_of(self._own, epoch)[: self._most]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def train_student(name: str, plains: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train in this process, once for each of these settings, by the lab's loop; workers are threads."""

    def sampler(dataset: Sized, _: Tensor, size: int, rank: int, seed: int) -> EpochSampler:
        return EpochSampler(name, dataset, size, rank, seed)

    return [asdict(train_way(Way(sampler), from_plain(plain))) for plain in plains]


def divided(name: str, num_samples: int, workers: int, seed: int) -> dict[str, Any]:
    """What all nodes go through in two epochs, as the student's sampler gives it."""
    samplers = [student_sampler(name, range(num_samples), workers, rank, seed) for rank in range(workers)]
    first, second = ([numbers_of(sampler, epoch) for sampler in samplers] for epoch in (0, 1))
    counts = torch.tensor(list(chain(*first))).bincount(minlength=num_samples)
    return {
        "coverage": float((counts > 0).float().mean()),
        "times": int(counts.max()),
        "changes": first != second,
        "lengths": [len(numbers) for numbers in first],
    }
