"""What fills the page about a student's code: values, tables, files; and the tables that it does not show."""

import math
from collections.abc import Mapping, Sequence

from shoal.kit.base import Phrase
from shoal.kit.findings import Finding, over_seeds
from shoal.kit.page import Records
from shoal_labs.page.table import Cell, PageTable
from shoal_labs.page.template import Content
from shoal_labs.student.part import StudentMeasured

FORMATS = {
    "difference": "sci",
    "gradient": "sci",
    "second": "sci",
    "called": "",
    "time": ".2f",
    "coverage": ".1f",
    "times": "d",
    "lengths": "d",
    "steps": "d",
    "places": "",
    "entries": "d",
}
"""How the page writes each further number of a part."""


def unit_of_loss(measured: StudentMeasured) -> Phrase | str:
    """In brackets; a tape fits a line, whose loss has no unit."""
    return "" if "tape" in measured.parts else Phrase("own.nats")


def content(measured: StudentMeasured, findings: Mapping[str, Sequence[Finding]]) -> Content:
    """Everything but figures and findings; sections without findings are left out."""
    plan, parts = measured.plan, measured.parts.values()
    sources, size = plan.submission.sources, plan.size
    columns = [column for column in FORMATS if any(column in part.cells for part in parts)]
    relative = any(FORMATS[column] == "sci" for column in columns)
    several = any(len(part.runs) > 1 for part in parts)
    sections = {"own_uneven": ("own_uneven",), "own_cost": ("own_slow", "own_faster", "own_backward")}
    return Content(
        values={
            "number": plan.submission.number,
            "samples": size.samples,
            "steps": size.steps,
            "equal_steps": size.equal_steps,
            "rounds": size.rounds,
            "seeds": plan.seeds,
            "unit": unit_of_loss(measured),
            "bands": Phrase("own_results.bands") if several else "",
            "relative": Phrase("own_facts.relative") if relative else "",
        },
        each={
            **{
                f"lab_{number}": [{}] * (number == plan.submission.number)
                for number in ("1", "2", "3", "4", "autograd")
            },
            "files": [{"file": name} for name in sources],
            "alone": [{}] * (measured.lab is None),
            "trained": [{}] * any(part.runs for part in parts),
            "drawn": [{}] * bool(measured.drawn),
            "tested": [{}] * any(part.accuracies(part.runs) for part in parts),
            "facts": [{"column": Phrase(f"own_facts.{column}_column")} for column in columns],
            **{
                section: [{}] * any(findings[name] for name in names)
                for section, names in {**sections, "own_learnt": ("own_accuracy",)}.items()
            },
        },
        tables={"tasks": _tasks(measured), "ends": _ends(measured), "facts": _facts(measured, columns)},
        code={name: source.rstrip("\n") + "\n" for name, source in sources.items()},
    )


def _tasks(measured: StudentMeasured) -> PageTable:
    """What the check says about every task."""
    return PageTable(
        {"task": "", "verdict": "", "why": ""},
        [
            [", ".join(verdict.tasks), Phrase(f"check.{verdict.word}"), verdict.why or None]
            for verdict in measured.verdicts
        ],
    )


def _ends(measured: StudentMeasured) -> PageTable:
    """The end of training: the student's numbers beside those of the same training done right."""
    parts = measured.parts.values()
    columns = {"part": "", "loss at the end": ".4f", "done right: loss": ".4f"}
    tested = any(part.accuracies(part.runs) for part in parts)
    columns |= {"test accuracy (%)": ".2f", "done right (%)": ".2f"} if tested else {}
    rows: list[list[Cell]] = []
    for part in parts:
        both = (part.runs, part.right)
        accuracies = [_percent(part.accuracies(of)) for of in both] if tested else []
        rows.append([part.label, *(_loss(part.losses(of)) for of in both), *accuracies])
    return PageTable(columns, rows)


def _facts(measured: StudentMeasured, columns: Sequence[str]) -> PageTable:
    """What else was measured of each part; the command line shows it at the end."""
    parts = measured.parts.values()
    return PageTable(
        {"part": "", **{column: FORMATS[column] for column in columns}},
        [[part.label, *(part.cells.get(column) for column in columns)] for part in parts],
    )


def _loss(values: Sequence[float]) -> Cell:
    if not all(map(math.isfinite, values)):
        return Phrase("own.not_finite")
    return over_seeds(values) if values else None


def _percent(values: Sequence[float]) -> Cell:
    return over_seeds(values).scaled(100) if values else None


def tables(measured: StudentMeasured) -> dict[str, Records]:
    """Every run's end, and its curve."""
    trained = [
        (part, who, seed, each)
        for part in measured.parts.values()
        for who, runs in (("student", part.runs), ("right", part.right))
        for seed, each in enumerate(runs, start=measured.plan.first_seed)
    ]
    return {
        "runs": [
            {
                "part": part.name,
                "code": who,
                "seed": seed,
                "final loss (nat)": each.final_loss,
                "test accuracy (1)": "" if each.accuracy is None else each.accuracy,
            }
            for part, who, seed, each in trained
        ],
        "curves": [
            {"part": part.name, "code": who, "seed": seed, "x": f"{x:.6g}", "loss (nat)": f"{loss:.6g}"}
            for part, who, seed, each in trained
            for x, loss in zip(part.x, each.losses, strict=True)
        ],
    }
