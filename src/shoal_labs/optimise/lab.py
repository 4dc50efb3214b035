"""The lab as a spec for the frame: its settings, and its parts one after the other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from shoal import data
from shoal.report.document import Block
from shoal_labs.choices import with_choices
from shoal_labs.frame import LabSpec
from shoal_labs.optimise.compression.document import closing_table
from shoal_labs.optimise.compression.part import COMPRESSION
from shoal_labs.optimise.memory.part import MEMORY
from shoal_labs.optimise.part import Part
from shoal_labs.optimise.pruning.part import PRUNING
from shoal_labs.optimise.straggler.part import STRAGGLER
from shoal_labs.page.page import Page
from shoal_labs.settings import OptimiseSettings

PARTS: Mapping[str, Part] = {
    "compression": COMPRESSION,
    "straggler": STRAGGLER,
    "pruning": PRUNING,
    "memory": MEMORY,
}
"""In the order of the page."""

Value = TypeVar("Value")
Measured = Mapping[str, Any]
"""The measurements of each part."""


@dataclass(frozen=True)
class OptimisePlan:
    """The plan of each part."""

    workers: int
    quick: bool
    parts: Mapping[str, Any]


def plan_for(settings: OptimiseSettings) -> OptimisePlan:
    """The plan of a run."""
    given = settings.workers, settings.quick, settings.seed
    plans = {name: part.plan(*given) for name, part in PARTS.items()}
    chosen = {
        name: with_choices(plan, settings) if PARTS[name].takes_data else plan for name, plan in plans.items()
    }
    return OptimisePlan(settings.workers, settings.quick, chosen)


def _merged(made: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    return {name: value for each in made for name, value in each.items()}


def _of_all(get: Callable[[Part, Any], Mapping[str, Value]], given: Mapping[str, Any]) -> dict[str, Value]:
    """What every part makes of its plan or its measurements."""
    return _merged(get(part, given[name]) for name, part in PARTS.items())


def set_up(measured: Measured, page: Page) -> list[Block]:
    """The runs of every part."""
    return [block for name, part in PARTS.items() for block in part.set_up(measured[name], page)]


LAB = LabSpec(
    number="optimise",
    plan=plan_for,
    subject=lambda plan: {"workers": plan.workers},
    check=lambda plan: [data.load(part.data) for part in plan.parts.values()],
    runs=lambda plan: _of_all(lambda part, given: part.runs(given), plan.parts),
    measure=lambda plan, runs: {name: part.measure(plan.parts[name], runs) for name, part in PARTS.items()},
    findings=lambda measured: _of_all(lambda part, given: part.findings(given), measured),
    figures=lambda measured: _of_all(lambda part, given: part.figures(given), measured),
    tables=lambda measured: _of_all(lambda part, given: part.tables(given), measured),
    principle=lambda page: [block for part in PARTS.values() for block in part.principle(page)],
    code=lambda _, page: [block for part in PARTS.values() for block in part.code(page)],
    set_up=set_up,
    results=lambda measured, page: [
        block for name, part in PARTS.items() for block in part.results(measured[name], page)
    ],
    closing=lambda measured, page: closing_table(measured["compression"], page),
)
