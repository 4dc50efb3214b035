"""The sections of the report that are about a student's code."""

import math
from collections.abc import Sequence

from shoal.report.document import Block, Bullets, Code, Table
from shoal.report.findings import over_seeds
from shoal_labs.page.page import Page
from shoal_labs.student.part import StudentMeasured, StudentPart
from shoal_labs.words import Words

EMPTY = "–"
TEXT_COLUMNS = ("called", "lengths", "places")
DIFFERENCES = {"difference", "gradient", "second"}
"""Columns whose numbers are relative."""


def unit_of_loss(measured: StudentMeasured, words: Words) -> str:
    """In brackets; a tape fits a line, whose loss has no unit."""
    return "" if "tape" in measured.parts else words("own.nats")


def code(measured: StudentMeasured, page: Page) -> list[Block]:
    """The student's files as they ran."""
    sources = measured.plan.submission.sources
    return [Code(source.rstrip("\n") + "\n", name) for name, source in sources.items()]


def set_up(measured: StudentMeasured, page: Page) -> list[Block]:
    """What is the student's, what is Shoal's, and how much was trained."""
    plan = measured.plan
    size = plan.size
    number = plan.submission.number
    values = {
        "samples": size.samples,
        "steps": size.steps,
        "equal_steps": size.equal_steps,
        "rounds": size.rounds,
        "seeds": plan.seeds,
    }
    return [
        Bullets(
            [
                page(f"own.setup_{number}", **values),
                page(f"own.runs_{number}", **values),
                page("own.measured"),
            ]
        )
    ]


def results(measured: StudentMeasured, page: Page) -> list[Block]:
    """The tasks, the curves and the end of training, what else was measured."""
    blocks = tasks(measured, page)
    if any(part.runs for part in measured.parts.values()):
        several = any(len(part.runs) > 1 for part in measured.parts.values())
        blocks += page.section("own_results")
        if measured.drawn:
            bands = page("own_results.bands") if several else ""
            blocks.append(page.figure("own", "own_results", bands=bands))
        blocks.append(end_table(measured, page))
    return [*blocks, fact_table(measured, page)]


def tasks(measured: StudentMeasured, page: Page) -> list[Block]:
    """What the check says about every task."""
    rows = [
        [", ".join(verdict.tasks), page(f"check.{verdict.word}"), verdict.why or EMPTY]
        for verdict in measured.verdicts
    ]
    return [
        *page.section("own_tasks", number=measured.plan.submission.number),
        page.table("own_tasks", page.header("own_tasks", "task", "verdict", "why"), rows, right=frozenset()),
    ]


def end_table(measured: StudentMeasured, page: Page) -> Table:
    """The end of training: the student's numbers beside those of the same training done right."""
    parts = list(measured.parts.values())
    rows = [[part.label, *(_loss(part.losses(of), page) for of in (part.runs, part.right))] for part in parts]
    unit = unit_of_loss(measured, page.words)
    header = page.header("own_results", "part", "loss", "right_loss", unit=unit)
    if any(part.accuracies(part.runs) for part in parts):
        header += page.header("own_results", "accuracy", "right_accuracy")
        for row, part in zip(rows, parts, strict=True):
            row += [_percent(part.accuracies(of)) for of in (part.runs, part.right)]
    return page.table("own_results", header, rows)


def fact_table(measured: StudentMeasured, page: Page) -> Table:
    """What else was measured of each part; the command line shows it at the end."""
    parts = list(measured.parts.values())
    columns = columns_of(parts)
    rows = [[part.label, *(part.cells.get(column, EMPTY) for column in columns)] for part in parts]
    header = [*page.header("own_results", "part"), *page.header("own_facts", *columns)]
    right = frozenset(place for place, name in enumerate(columns, start=1) if name not in TEXT_COLUMNS)
    relative = page("own_facts.relative") if DIFFERENCES & set(columns) else ""
    return page.table("own_facts", header, rows, right, relative=relative)


def columns_of(parts: Sequence[StudentPart]) -> list[str]:
    """The further columns of all parts, in the order in which they appear."""
    return list(dict.fromkeys(column for part in parts for column in part.cells))


def _loss(values: Sequence[float], page: Page) -> str:
    if not all(map(math.isfinite, values)):
        return page("own.not_finite")
    return f"{over_seeds(values):.4f}" if values else EMPTY


def _percent(values: Sequence[float]) -> str:
    return f"{over_seeds(values).scaled(100):.2f}" if values else EMPTY
