"""What workers see of a data set: how many samples each, which labels, how much of the whole, how much twice.

A division that is wrong still trains, and its accuracy looks fine; these numbers show it. `lists` are the indices that
each worker goes through, by rank, in one epoch or in several.

>>> halves = [torch.tensor([0, 1]), torch.tensor([1, 2])]
>>> seen = survey(halves, num_samples=4)
>>> seen.coverage, seen.overlap, seen.sentence()
(0.75, 0.25, 'seen by nobody: 1 of 4 samples; seen by more than one worker: 1 of 4 samples')
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Survey:
    """What workers see of a data set of `num_samples`."""

    num_samples: int
    per_worker: tuple[int, ...]
    """Samples that each worker goes through; one that comes twice counts twice."""
    workers_per_sample: Tensor
    """[num_samples]: how many workers see each sample."""
    labels: tuple[int, ...]
    """The labels there are; none if they were not given."""
    histogram: Tensor
    """[workers, labels]: how many samples of each label each worker goes through."""
    whole: Tensor
    """[labels]: how many samples of each label the data set has."""

    @property
    def coverage(self) -> float:
        """The part of the data set that some worker sees, from 0 to 1."""
        return self._part(self.workers_per_sample > 0)

    @property
    def overlap(self) -> float:
        """The part of the data set that more than one worker sees, from 0 to 1."""
        return self._part(self.workers_per_sample > 1)

    @property
    def skew(self) -> tuple[float, ...]:
        """How far each worker's label proportions are from the whole's: ½ Σ|p − q|, from 0 (the same) towards 1.

        It is the part of a worker's samples that would have to have another label. NaN without samples or labels.
        """
        own = self.histogram / self.histogram.sum(dim=1, keepdim=True)
        distances = (own - self.whole / self.whole.sum()).abs().sum(dim=1) / 2
        return tuple(distances.tolist()) if self.labels else (float("nan"),) * len(self.per_worker)

    def sentence(self) -> str:
        """What is wrong with a division that should see every sample once; empty if nothing is."""
        found = {
            "nobody": int((self.workers_per_sample == 0).sum()),
            "more than one worker": int((self.workers_per_sample > 1).sum()),
        }
        return "; ".join(
            f"seen by {who}: {number:,} of {self.num_samples:,} samples"
            for who, number in found.items()
            if number
        )

    def _part(self, which: Tensor) -> float:
        return which.sum().item() / self.num_samples


def survey(lists: Sequence[Tensor], num_samples: int, labels: Tensor | None = None) -> Survey:
    """Count who sees what. `lists` are the indices each worker goes through; `labels` those of all samples."""
    labels = torch.empty(0, dtype=torch.int64) if labels is None else labels.cpu()
    names, codes, whole = labels.unique(return_inverse=True, return_counts=True)
    histogram = [codes[indices if len(names) else []].bincount(minlength=len(names)) for indices in lists]
    return Survey(
        num_samples,
        tuple(len(indices) for indices in lists),
        workers_per_sample(lists, num_samples),
        tuple(names.tolist()),
        torch.stack(histogram),
        whole,
    )


def workers_per_sample(lists: Sequence[Tensor], num_samples: int) -> Tensor:
    """How many workers see each sample; a worker that sees it twice counts once.

    >>> workers_per_sample([torch.tensor([0, 0, 1]), torch.tensor([1])], 3)
    tensor([1, 2, 0])
    """
    seen = torch.zeros(num_samples, dtype=torch.int64)
    for indices in lists:
        seen[indices] += 1  # an index that stands twice in one assignment counts once
    return seen


def expected_coverage_of_sampling(num_samples: int, draws: int) -> float:
    """The part of a data set that so many draws with replacement see on average: 1 − (1 − 1/N)^draws.

    >>> round(expected_coverage_of_sampling(10_000, draws=10_000), 3)
    0.632
    """
    return 1 - (1 - 1 / num_samples) ** draws
