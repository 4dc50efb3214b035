"""Which samples each worker sees: counted by the same calls that the training loop makes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.kit.base import ConfigError
from shoal.kit.division import DataSet, Division, Survey, build_division, divide, load, survey
from shoal_labs.lab3.plan import BATCH_SIZE, DIVISIONS, Lab3Plan, partition_of
from shoal_labs.lab3.wrong_samplers import OneWorkersRange, SeedPerRank


@dataclass(frozen=True, eq=False)
class Seen:
    """What workers see of the data set under one division, with one seed."""

    first: Survey
    """Of the first epoch."""
    times: int
    """How many times the most frequent sample occurs in the first epoch."""
    coverage: tuple[float, ...]
    """The part of the data set that any worker has seen so far, after every epoch."""

    @property
    def once(self) -> bool:
        """Whether every sample is seen, and none twice."""
        return self.first.coverage == 1 and self.times == 1

    @property
    def skew(self) -> float:
        """Of the worker whose labels differ most from those of the whole set."""
        return max(self.first.skew)

    @property
    def largest_part(self) -> float:
        """The part of an epoch's samples that the worker with the most samples has."""
        return max(self.first.per_worker) / sum(self.first.per_worker)


def seen_in(plan: Lab3Plan, data: DataSet, division: str, workers: int, seed: int) -> Seen:
    """Count over the epochs of a run."""
    labels = data.train.labels
    rule = build_division(partition_of(division, workers), len(data.train), workers, seed, labels)
    epochs = [lists_of(rule, epoch) for epoch in range(plan.size.epochs)]
    so_far = torch.zeros(len(data.train), dtype=torch.bool)
    coverage: list[float] = []
    for lists in epochs:
        so_far[torch.cat(lists)] = True
        coverage.append(so_far.float().mean().item())
    times = int(torch.cat(epochs[0]).bincount().max())
    return Seen(survey(epochs[0], len(data.train), labels), times, tuple(coverage))


def lists_of(division: Division, epoch: int) -> list[Tensor]:
    """What each worker goes through in an epoch, step by step."""
    starts = range(0, division.num_samples, BATCH_SIZE)
    return [
        torch.cat([division.step(epoch, start, BATCH_SIZE, rank) for start in starts])
        for rank in range(division.size)
    ]


def check_divisions(plan: Lab3Plan) -> None:
    """Raise the error of a division that cannot divide the plan's data set, before anything runs."""
    data = load(plan.data)
    for workers in plan.workers:
        for division in DIVISIONS:
            for seed in plan.seeds_of(division, workers):
                build_division(
                    partition_of(division, workers), len(data.train), workers, seed, data.train.labels
                )


def refusals(workers: int, num_samples: int) -> dict[str, str]:
    """The errors with which Shoal refuses the wrong samplers as partitions; empty if it accepts one."""
    return {
        "range": _refusal(OneWorkersRange, workers, num_samples),
        "rank-seed": _refusal(SeedPerRank, workers, num_samples),
    }


def _refusal(kind: type[OneWorkersRange | SeedPerRank], workers: int, num_samples: int) -> str:
    def rule(num_samples: int, workers: int) -> list[Tensor]:
        return [torch.tensor(list(kind(range(num_samples), workers, rank))) for rank in range(workers)]

    rule.__name__ = kind.__name__
    try:
        divide(rule, num_samples, workers)
    except ConfigError as error:
        return error.message
    return ""
