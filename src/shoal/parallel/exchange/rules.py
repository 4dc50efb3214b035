"""Rules: many workers' buckets become one. Pure functions of `rows`, a tensor [workers, elements].

Write W for the number of workers, of which `bad` may have sent anything at all::

    rule            gives, for every element                                        bears
    total           the sum                                                         none
    mean            the sum / W                                                     none
    weighted_mean   Σ wᵢ·rowᵢ / Σ wᵢ                                                none
    median          the middle value                                                bad, where W ≥ 2·bad + 1
    trimmed_mean    the mean without the `bad` largest and smallest values          bad, where W ≥ 2·bad + 1
    krum            the value of one row: whose W − bad − 2 nearest are nearest     bad, where W ≥ 2·bad + 3

(Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries", 2017.)

The last three are *robust*. A row that holds a number which is not finite is known to be bad: they leave it out, and
it counts against `bad`. (Compared like others it would spoil them: torch's median hands NaN on, and a distance to NaN
is NaN.) With more such rows than they bear, they give NaN and leave the decision to the guard.

Each but `total` stands for one worker's bucket: the aggregate of all is W times that. Robust rules compare rows with
each other and so suppose that workers have equal shares; where shares are uneven, let each worker start from its own
mean (`--combine mean`).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shoal.comm.reduction import Op, tree_reduce
from shoal.errors import ConfigError


def total(rows: Tensor) -> Tensor:
    """The sum over the workers, in the order of every sum of ours: the balanced tree.

    >>> total(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([4., 6.])
    """
    result = torch.empty_like(rows[0])
    tree_reduce(Op.SUM, rows.unbind(), out=result)
    return result


def mean(rows: Tensor) -> Tensor:
    """The mean over the workers; of their own means it is the mean of means, exact only for equal shares.

    >>> mean(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([2., 3.])
    """
    return total(rows) / len(rows)


def weighted_mean(rows: Tensor, weights: Sequence[float]) -> Tensor:
    """Σ wᵢ·rowᵢ / Σ wᵢ: with the numbers of samples as weights, workers' own means become the mean over all samples.

    >>> weighted_mean(torch.tensor([[1.0], [5.0]]), weights=[3, 1])
    tensor([2.])
    """
    parts = torch.tensor(weights, dtype=rows.dtype, device=rows.device) / sum(weights)
    return total(rows * parts[:, None])


def median(rows: Tensor) -> Tensor:
    """The middle value of every element; of an even number of workers, the mean of the two in the middle.

    Bears ⌊(W − 1) / 2⌋ bad rows: the middle then lies between values of good ones. Costs W (W − 1) passes over a row.

    >>> median(torch.tensor([[1.0, 2.0], [9.0, 3.0], [2.0, -7.0]]))
    tensor([2., 2.])
    """
    kept, left = _finite_rows(rows, (len(rows) - 1) // 2)
    if left < 0:
        return torch.full_like(rows[0], torch.nan)
    ordered = _sorted(kept)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low.clone() if low is high else (low + high) / 2


def trimmed_mean(rows: Tensor, bad: int) -> Tensor:
    """The mean of every element, without its `bad` largest and `bad` smallest values.

    Bears `bad` rows where W > 2·bad: an extreme value is cut off, and one that is not lies between good ones. Costs
    W (W − 1) passes over a row.

    >>> trimmed_mean(torch.tensor([[1.0], [900.0], [2.0], [3.0]]), bad=1)
    tensor([2.5000])
    """
    check_bound("trimmed_mean", len(rows), bad)
    kept, left = _finite_rows(rows, bad)
    if left < 0:
        return torch.full_like(rows[0], torch.nan)
    return mean(torch.stack(_sorted(kept)[left : len(kept) - left]))


def krum(rows: Tensor, bad: int) -> Tensor:
    """One row, whole: the one whose W − bad − 2 nearest other rows are nearest, by the sum of squared distances.

    Bears `bad` rows where W ≥ 2·bad + 3: most of the neighbours of the row that is taken are then good. Of rows that
    tie, the first is taken. Costs W (W − 1) / 2 passes over two rows. (A score is rounded like any sum: workers whose
    processors or numbers of threads differ may, of two rows that nearly tie, take different ones.)

    >>> krum(torch.tensor([[1.0], [1.1], [1.3], [900.0], [0.7]]), bad=1)
    tensor([1.1000])
    """
    check_bound("krum", len(rows), bad)
    kept, left = _finite_rows(rows, bad)
    if left < 0:
        return torch.full_like(rows[0], torch.nan)
    # In double precision a square cannot overflow where its number did not.
    distances = torch.full((len(kept), len(kept)), torch.inf, dtype=torch.float64)
    for first in range(len(kept)):
        for second in range(first + 1, len(kept)):
            distance = (kept[first] - kept[second]).double().square().sum()
            distances[first, second] = distances[second, first] = distance
    scores = distances.sort(dim=1).values[:, : len(kept) - left - 2].sum(dim=1)
    return kept[int(scores.argmin())].clone()


ROBUST: dict[str, Callable[[Tensor, int], Tensor]] = {
    "median": lambda rows, bad: median(rows),
    "trimmed_mean": trimmed_mean,
    "krum": krum,
}
"""The rules that bear bad workers, by name: `rule(rows, bad)`."""

SPARE = {"median": 1, "trimmed_mean": 1, "krum": 3}
"""Each of them needs 2·bad + so many workers."""


def check_bound(rule: str, workers: int, bad: int) -> None:
    """Refuse to bear so many bad workers among so few.

    >>> check_bound("krum", workers=4, bad=1)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: krum bears 1 bad worker only among 5 or more, and there are 4
      Start 5 workers, or set --exchange.bad 0, or use --exchange robust:median.
    """
    needed = 2 * bad + SPARE[rule]
    if workers >= needed:
        return
    ways = [f"Start {needed} workers"]
    if workers >= SPARE[rule]:
        ways.append(f"set --exchange.bad {(workers - SPARE[rule]) // 2}")
    ways += [f"use --exchange robust:{other}" for other in SPARE if workers >= 2 * bad + SPARE[other]][:1]
    raise ConfigError(
        f"{rule} bears {bad} bad worker{'s' * (bad != 1)} only among {needed} or more, and there are {workers}",
        f"{', or '.join(ways)}.",
    )


def _finite_rows(rows: Tensor, bad: int) -> tuple[list[Tensor], int]:
    """The rows that may be compared, and how many bad ones may still be among them."""
    # The sum of squares is one pass without a temporary. It may overflow where no number did, so a suspect is looked
    # at more closely.
    kept = [row for row in rows if bool(row.dot(row).isfinite()) or bool(row.isfinite().all())]
    return kept, bad - (len(rows) - len(kept))


def _sorted(rows: Sequence[Tensor]) -> list[Tensor]:
    """Every element's values in rising order, by exchanging neighbours: W rounds, as in bubble sort, but side by side.

    For a handful of workers many times as quick as `torch.sort`, which sorts one element after the other.
    """
    ordered = list(rows)
    for turn in range(len(ordered)):
        for place in range(turn % 2, len(ordered) - 1, 2):
            low, high = ordered[place], ordered[place + 1]
            ordered[place], ordered[place + 1] = torch.minimum(low, high), torch.maximum(low, high)
    return ordered
