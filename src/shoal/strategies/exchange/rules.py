"""Rules: many workers' buckets become one; and the exchange that applies one instead of a sum.

A rule is a pure function of `rows`, a tensor [workers, elements].

Write W for the number of workers, of which `bad` may have sent anything at all::

    rule            returns, for every element                                      tolerates
    total           the sum                                                         none
    mean            the sum / W                                                     none
    median          the middle value                                                bad, where W ≥ 2·bad + 1
    trimmed_mean    the mean without the `bad` largest and smallest values          bad, where W ≥ 2·bad + 1
    krum            the value of the row whose W − bad − 2 neighbours are nearest   bad, where W ≥ 2·bad + 3

(Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries", 2017.)

The last three are *robust*. A row with a number that is not finite is known to be bad: they leave it out, and it counts
towards `bad`. (Compared like the others it would spoil the result: torch's median propagates NaN, and a distance to NaN
is NaN.) With more such rows than they tolerate, they return NaN and leave the decision to the guard.

A rule of the user's own is a function of (rows, bad), too: `--exchange robust:module:function`.

Each but `total` stands for one worker's bucket: the aggregate of all is W times that. Robust rules compare rows with
each other, so they assume that workers have equal shares; with uneven shares, let each worker start from its own mean
(`--combine mean`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.reduction import Op, tree_reduce
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.values import Custom, is_own
from shoal.errors import ConfigError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Exchange, Then


def total(rows: Tensor) -> Tensor:
    """The sum over the workers, in the order of all our sums: the balanced tree.

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


def median(rows: Tensor) -> Tensor:
    """The middle value of every element; of an even number of workers, the mean of the two in the middle.

    Tolerates ⌊(W − 1) / 2⌋ bad rows: the middle value is then between values of good ones. Costs W (W − 1)
    passes over a row.

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

    Tolerates `bad` rows where W > 2·bad: extreme values are cut off, and all others are between good ones. Costs
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
    """One whole row: the one with the smallest sum of squared distances to its W − bad − 2 nearest neighbours.

    Tolerates `bad` rows where W ≥ 2·bad + 3: most neighbours of the chosen row are then good. Of rows that tie, the
    first is chosen. Costs W (W − 1) / 2 passes over two rows. (A score is rounded like any sum: of two rows that nearly
    tie, workers with other processors or numbers of threads may choose different ones.)

    >>> krum(torch.tensor([[1.0], [1.1], [1.3], [900.0], [0.7]]), bad=1)
    tensor([1.1000])
    """
    check_bound("krum", len(rows), bad)
    kept, left = _finite_rows(rows, bad)
    if left < 0:
        return torch.full_like(rows[0], torch.nan)
    # In double precision the square of a finite float32 cannot overflow.
    distances = torch.full((len(kept), len(kept)), torch.inf, dtype=torch.float64)
    for first in range(len(kept)):
        for second in range(first + 1, len(kept)):
            difference = (kept[first] - kept[second]).double()
            # Squares that are stored before they are summed take several times as long.
            distances[first, second] = distances[second, first] = difference.dot(difference)
    scores = distances.sort(dim=1).values[:, : len(kept) - left - 2].sum(dim=1)
    return kept[int(scores.argmin())].clone()


ROBUST: dict[str, Callable[[Tensor, int], Tensor]] = {
    "median": lambda rows, bad: median(rows),
    "trimmed_mean": trimmed_mean,
    "krum": krum,
}
"""The rules that tolerate bad workers, by name: `rule(rows, bad)`."""

SPARE = {"median": 1, "trimmed_mean": 1, "krum": 3}
"""A rule needs at least 2·bad + this many workers; of one's own, too: half of the workers cannot be outvoted."""


def rule_of(name: str) -> Callable[[Tensor, int], Tensor]:
    """The rule of a name: one of the table, or the user's own `package.module:function` of (rows, bad)."""
    if not is_own(name):
        return ROBUST[name]
    config = Custom(name=name)
    with calling("exchange.rule", config):
        function = load("exchange.rule", config)
        check_options("exchange.rule", config, function, given=2)

    def rule(rows: Tensor, bad: int) -> Tensor:
        result = function(rows, bad)
        _check_result(name, result, rows, bad)
        return result

    return rule


def _check_result(name: str, result: object, rows: Tensor, bad: int) -> None:
    """Refuse what does not stand for a bucket; the guard leaves as many bad workers as are tolerated to the rule."""
    expected = f"{rows.shape[1]} elements in {rows.dtype}"
    if not isinstance(result, Tensor):
        raise ConfigError(
            f"rule {name} returned a value of type {type(result).__name__}, expected {expected}"
        )
    if (result.shape, result.dtype) != (rows.shape[1:], rows.dtype):
        shape = " × ".join(map(str, result.shape)) or "one"
        raise ConfigError(f"rule {name} returned {shape} elements in {result.dtype}, expected {expected}")
    if not result.isfinite().all():
        num_bad = int((~rows.isfinite()).any(1).sum())
        if num_bad <= bad:
            raise ConfigError(
                f"rule {name} returned a number that is not finite, though {num_bad} of {len(rows)} rows have one and "
                f"--exchange.bad is {bad}",
                "Leave such rows out of the rule, or set --exchange.bad 0: the guard then stops the run.",
            )


def check_bound(rule: str, workers: int, bad: int, more: str = "Start {} workers") -> None:
    """Refuse more bad workers than a rule tolerates among this many workers; `more` says how there are more.

    >>> check_bound("krum", workers=4, bad=1)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: krum tolerates 1 bad worker only with at least 5 workers; you have 4
      Start 5 workers, or set --exchange.bad 0, or use --exchange robust:median.
    """
    spare = SPARE.get(rule, 1)
    needed = 2 * bad + spare
    if workers >= needed:
        return
    ways = [more.format(needed)]
    if workers >= spare:
        ways.append(f"set --exchange.bad {(workers - spare) // 2}")
    ways += [f"use --exchange robust:{other}" for other in SPARE if workers >= 2 * bad + SPARE[other]][:1]
    raise ConfigError(
        f"{rule} tolerates {bad} bad worker{'s' * (bad != 1)} only with at least {needed} workers; you have {workers}",
        f"{', or '.join(ways)}.",
    )


def _finite_rows(rows: Tensor, bad: int) -> tuple[list[Tensor], int]:
    """The rows that can be compared, and how many of them may still be bad."""
    # The sum of squares is one pass without a temporary. It may overflow where no number did, so a suspicious row is
    # checked element by element.
    kept = [row for row in rows if bool(row.dot(row).isfinite()) or bool(row.isfinite().all())]
    return kept, bad - (len(rows) - len(kept))


def _sorted(rows: Sequence[Tensor]) -> list[Tensor]:
    """Every element's values in ascending order, by odd-even transposition sort: W rounds over whole rows.

    For a handful of workers many times faster than `torch.sort`, which sorts each element separately.
    """
    ordered = list(rows)
    for turn in range(len(ordered)):
        for place in range(turn % 2, len(ordered) - 1, 2):
            low, high = ordered[place], ordered[place + 1]
            ordered[place], ordered[place + 1] = torch.minimum(low, high), torch.maximum(low, high)
    return ordered


@dataclass(frozen=True)
class Robust(Exchange):
    """Phase 1, all-gather: every worker receives all buckets. Phase 2, every worker applies the rule.

    The aggregate stands for the sum, a rule for one worker's bucket: the bucket becomes workers · rule(rows, bad). All
    workers apply the same function to the same rows, so all hold the same bits.

    Costs (W − 1)·n elements received by every worker, where an all-reduce has 2·n·(W − 1)/W, and memory for W
    buckets, twice while the rule sorts. The all-gather may proceed while the caller computes; the rule is applied in
    `wait`.
    """

    rule: Callable[[Tensor, int], Tensor]
    bad: int

    @property
    def tolerates(self) -> int:
        """As many bad workers as the rule was built for."""
        return self.bad

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the all-gather."""
        flat = bucket.flat
        rows = torch.empty((group.size, flat.numel()), dtype=flat.dtype, device=flat.device)

        def apply() -> None:
            torch.mul(self.rule(rows, self.bad), len(rows), out=flat)

        return Then([group.all_gather(rows, flat)], apply)
