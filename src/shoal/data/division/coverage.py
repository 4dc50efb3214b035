"""Statistics of a division: samples and labels of each worker, coverage of the data set, overlap.

A wrong division still trains, and its accuracy looks plausible; these numbers reveal it. `lists` are the indices of the
samples that each worker sees, by rank, in one epoch or in several.

>>> halves = [torch.tensor([0, 1]), torch.tensor([1, 2])]
>>> seen = survey(halves, num_samples=4)
>>> seen.coverage, seen.overlap, seen.sentence()
(0.75, 0.25, 'seen by no worker: 1 of 4 samples; seen by more than one worker: 1 of 4 samples')
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of a division of `num_samples` samples."""

    num_samples: int
    per_worker: tuple[int, ...]
    """Samples that each worker sees; a repeated one counts twice."""
    workers_per_sample: Tensor
    """[num_samples]: number of workers that see each sample."""
    labels: tuple[int, ...]
    """The distinct labels; empty if labels were not given."""
    histogram: Tensor
    """[workers, labels]: samples of each label that each worker sees."""
    whole: Tensor
    """[labels]: samples of each label in the data set."""

    @property
    def coverage(self) -> float:
        """The fraction of the data set that at least one worker sees."""
        return (self.workers_per_sample > 0).sum().item() / self.num_samples

    @property
    def overlap(self) -> float:
        """The fraction of the data set that more than one worker sees."""
        return (self.workers_per_sample > 1).sum().item() / self.num_samples

    @property
    def skew(self) -> tuple[float, ...]:
        """Distance of each worker's label proportions from the whole's: ½ Σ|p − q|, from 0 (equal) to 1.

        It is the fraction of a worker's samples that would need another label. NaN without samples or labels.
        """
        own = self.histogram / self.histogram.sum(dim=1, keepdim=True)
        distances = (own - self.whole / self.whole.sum()).abs().sum(dim=1) / 2
        return tuple(distances.tolist()) if self.labels else (float("nan"),) * len(self.per_worker)

    def sentence(self) -> str:
        """The problems of a division that should see every sample once; empty if there are none."""
        found = {
            "no worker": int((self.workers_per_sample == 0).sum()),
            "more than one worker": int((self.workers_per_sample > 1).sum()),
        }
        return "; ".join(
            f"seen by {who}: {number:,} of {self.num_samples:,} samples"
            for who, number in found.items()
            if number
        )


def survey(lists: Sequence[Tensor], num_samples: int, labels: Tensor | None = None) -> Survey:
    """Statistics of a division. `lists` are the indices that each worker sees; `labels` those of all samples."""
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
    """The number of workers that see each sample; a worker that sees it twice counts once.

    >>> workers_per_sample([torch.tensor([0, 0, 1]), torch.tensor([1])], 3)
    tensor([1, 2, 0])
    """
    seen = torch.zeros(num_samples, dtype=torch.int64)
    for indices in lists:
        seen[indices] += 1  # an index that occurs twice in one assignment counts once
    return seen


def expected_coverage_of_sampling(num_samples: int, draws: int) -> float:
    """The expected fraction of a data set seen by `draws` draws with replacement: 1 − (1 − 1/N)^draws.

    >>> round(expected_coverage_of_sampling(10_000, draws=10_000), 3)
    0.632
    """
    return 1 - (1 - 1 / num_samples) ** draws
