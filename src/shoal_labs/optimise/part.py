"""A part of the lab: one question with its own runs, claims, figures, and places of the page."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from shoal.kit.findings import Number, by_rounds
from shoal.kit.page import Records
from shoal.kit.runs import read_run
from shoal.kit.settings import RunConfig
from shoal_labs.claims import Claim, Pair
from shoal_labs.page.pictures import Draw
from shoal_labs.page.template import Content
from shoal_labs.runs import Runs

M = TypeVar("M")


def nothing(_: Any) -> dict[str, Any]:
    """Of a part that trains its runs while it measures, or whose tables the page shows."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a lab's spec says, for one part; names of runs, figures, tables and findings are unique in the lab."""

    plan: Callable[[int, bool, int], Any]
    """From workers, quick and the first seed."""
    takes_data: bool = True
    """Whether the user's data set takes the place of the plan's own."""
    runs: Callable[[Any], Mapping[str, RunConfig]] = nothing
    measure: Callable[[Any, Runs], Any]
    claims: Sequence[Claim[Any]]
    figures: Callable[[Any], Mapping[str, Draw]]
    content: Callable[[Any], Content]
    """Its values are in `each`, under the part's name: those of several parts have the same names."""
    tables: Callable[[Any], Mapping[str, Records]] = nothing


def in_turns(
    name: str,
    rule: str,
    rounds: Callable[[M], tuple[Sequence[float], Sequence[float]]],
    also: Callable[[M], Mapping[str, Number]] = nothing,
) -> Pair[M]:
    """A claim about two series, round by round, one of them times a factor: "asp > 1.1 * bsp".

    Its sentences have both numbers, their `ratio`, also in per cent (`part`), and the factor's `percent`: 10 for 1.1,
    80 for 0.8.
    """
    left, sign, right = re.split(" ([<>]) ", rule)
    sides = [side.rpartition(" * ") for side in (left, right)]
    first, second = (side[2] for side in sides)
    one, other = (float(side[0] or 1) for side in sides)
    factor = one * other

    def pair(measured: M):
        a, b = rounds(measured)
        return by_rounds([one * each for each in a], [other * each for each in b])

    def numbers(measured: M) -> dict[str, Number]:
        plain = by_rounds(*rounds(measured))
        percent = 100 * (factor - 1 if factor > 1 else factor)
        shown = {first: plain.first, second: plain.second, "ratio": plain.ratio, "part": 100 * plain.ratio}
        return {**shown, "percent": percent, **also(measured)}

    return Pair(name, f"{first} {sign} {second}", pair, numbers, timed=True)


def accuracy_of(run: Path) -> float:
    """A run's, on the test set."""
    return float(read_run(run).result["test_accuracy"])
