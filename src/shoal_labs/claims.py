"""Claims as data: which numbers are compared, in which direction, against which bound. Sentences are in the template.

A claim that can only come out one way is none. Where a verdict needs more than one comparison, it is a function:
`Computed`.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shoal.kit.findings import (
    Finding,
    Measured,
    Number,
    Paired,
    Verdict,
    first_higher,
    first_lower,
    higher,
    lower,
)
from shoal_labs.numbers import no_worse, whether

Findings = Mapping[str, Sequence[Finding]]
"""The findings by claim: none where the measurements cannot answer, several where a claim is about several things."""

M = TypeVar("M")
"""What a lab measured."""


def _nothing(_: object) -> dict[str, Number]:
    return {}


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True)
class Pair(Generic[M]):
    """Two numbers, compared seed by seed or round by round.

    The rule "gd < sgd" names both, in the order in which `pair` has them. "old - new <= 0.01": the second number is
    lower by no more than that.
    """

    name: str
    rule: str
    pair: Callable[[M], Paired]
    also: Callable[[M], Mapping[str, Number]] = _nothing
    """Further numbers of its sentences; they may replace the two."""
    scale: float = 1.0
    """What the numbers of the sentences are multiplied by."""
    timed: bool = False
    """Whether it rests on times that are compared seed by seed."""
    when: Callable[[M], bool] = _always
    """Whether these measurements can answer it; otherwise the page leaves it out."""

    def judge(self, measured: M) -> Finding:
        """The finding."""
        pair, (first, _, second, *_) = self.pair(measured), self.rule.split()
        shown = pair.scaled(self.scale)
        numbers = {first: shown.first, second: shown.second, **self.also(measured)}
        return Finding(self.name, numbers, self.verdict(pair), pair.pairs, timed=self.timed)

    def verdict(self, pair: Paired) -> Verdict:
        """Whether the rule holds for two numbers."""
        _, sign, _, *margin = self.rule.split()
        if margin:
            return no_worse(pair, float(margin[1]))
        return {"<": first_lower, ">": first_higher}[sign](pair)


_EXACT: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Bound(Generic[M]):
    """Numbers against bounds: "difference <= 1e-5", or several rules with `and` between them, which must all hold.

    A bound is a number or another name. Two numbers that scatter may leave it undecided; with an exact bound, a number
    is compared as it is.
    """

    name: str
    rule: str
    numbers: Callable[[M], Mapping[str, Number]]
    also: Callable[[M], Mapping[str, Number]] = _nothing
    """Further numbers of its sentences; they may replace those that decide."""
    timed: bool = False
    """Whether it rests on times."""
    when: Callable[[M], bool] = _always

    def judge(self, measured: M) -> Finding:
        """The finding."""
        numbers = self.numbers(measured)
        return Finding(self.name, {**numbers, **self.also(measured)}, self.verdict(numbers), timed=self.timed)

    def verdict(self, numbers: Mapping[str, Number]) -> Verdict:
        """Whether the rule holds for these numbers."""
        verdicts = {self._part(part.split(), numbers) for part in self.rule.split(" and ")}
        return next(each for each in ("fails", "undecided", "holds") if each in verdicts)

    def _part(self, rule: list[str], numbers: Mapping[str, Number]) -> Verdict:
        if len(rule) == 1:
            return whether(bool(numbers[rule[0]]))
        name, sign, bound = rule
        left, right = numbers[name], numbers[bound] if bound in numbers else float(bound)
        if isinstance(left, Measured) and isinstance(right, Measured):
            return {"<": lower, ">": higher}[sign](left, right)
        return whether(_EXACT[sign](left.value if isinstance(left, Measured) else left, right))


@dataclass(frozen=True)
class Computed(Generic[M]):
    """A claim whose verdict is computed by a function."""

    name: str
    judge: Callable[[M], Finding]
    when: Callable[[M], bool] = _always


Claim = Pair[M] | Bound[M] | Computed[M]


def judged(claims: Sequence[Claim[M]], measured: M) -> dict[str, list[Finding]]:
    """The findings by name: none where the measurements cannot answer."""
    return {claim.name: [claim.judge(measured)] if claim.when(measured) else [] for claim in claims}
