"""Lab 1 with the student's GD, SGD and Adam: the lab's whole experiment, and some steps against torch's rules."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shoal.config.write import to_plain
from shoal.errors import ConfigError, DivergedError
from shoal.report.document import Block
from shoal.report.findings import Finding
from shoal.report.plain_tables import Records
from shoal_labs.lab1.lab import LAB as LAB1
from shoal_labs.lab1.lab import Lab1Settings
from shoal_labs.lab1.measure import Lab1Measurements
from shoal_labs.lab1.plan import NAMES, Lab1Plan
from shoal_labs.numbers import scientific
from shoal_labs.page.page import Page
from shoal_labs.runs import Runs
from shoal_labs.student import document
from shoal_labs.student.claims import equal
from shoal_labs.student.host import StudentHost
from shoal_labs.student.nodes.lab1 import EQUAL_RATES, difference_from_rule
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan
from shoal_labs.student.spec import StudentExperiment, student_lab
from shoal_labs.student.submission import Submission, why_wrong
from shoal_labs.student.tables import task_records

PARTS: dict[str, tuple[str, ...]] = {
    "gd": ("gd_step", "zero_grad"),
    "sgd": ("sgd_step",),
    "adam": ("adam_state", "adam_step"),
}
EQUAL_WITHIN = 1e-4
"""Of the largest weight, in double precision; a wrong rule differs by far more."""


def lab_plan(settings: Lab1Settings, submission: Submission) -> Lab1Plan:
    """Lab 1's plan with the student's optimizers."""
    return replace(LAB1.plan(settings), code=submission.fingerprint)


def measure(plan: StudentPlan, names: Sequence[str], host: StudentHost, runs: Runs) -> dict[str, StudentPart]:
    """How far each optimizer is from its rule; the experiment needs all three."""
    missing = [runs.words(f"name.{name}") for name in NAMES if name not in names]
    if missing:
        raise ConfigError(
            f"{plan.submission.file}: the experiment compares GD, SGD and Adam; not written yet: {', '.join(missing)}",
            f"`shoal lab check 1 {plan.submission.folder}` lists the tasks.",
        )
    config = plan.lab.config("sgd", EQUAL_RATES["sgd"], plan.first_seed, 1, test=False)
    parts: dict[str, StudentPart] = {}
    for name in NAMES:
        difference = host.call(difference_from_rule, to_plain(config), name, plan.size.equal_steps)
        parts[name] = StudentPart(
            name,
            runs.words(f"own_name.{name}"),
            numbers={"difference": difference},
            cells={"difference": scientific(difference)},
        )
    return parts


def measure_lab(plan: StudentPlan, runs: Runs) -> Lab1Measurements:
    """The experiment of the lab."""
    try:
        return LAB1.measure(plan.lab, runs)
    except DivergedError as error:
        raise ConfigError(
            f"{plan.submission.file.name}: {error.message}",
            f"`shoal lab check 1 {plan.submission.folder}` tests the step of each optimizer.",
        ) from None


def own_findings(measured: StudentMeasured) -> list[Finding]:
    """Whether each optimizer follows the rule of its name."""
    steps = measured.plan.size.equal_steps
    return [
        equal(
            part.label,
            part.numbers["difference"],
            EQUAL_WITHIN,
            steps,
            why_wrong(PARTS[name], measured.verdicts),
        )
        for name, part in measured.parts.items()
    ]


def findings(measured: StudentMeasured) -> Mapping[str, Sequence[Finding]]:
    """About the code, then those of the lab with its numbers."""
    return {"own": own_findings(measured), **LAB1.findings(measured.lab)}


def set_up(measured: StudentMeasured, page: Page) -> list[Block]:
    """Whose the code is, then the set-up of the lab."""
    return [*document.set_up(measured, page), *LAB1.set_up(measured.lab, page)]


def results(measured: StudentMeasured, page: Page) -> list[Block]:
    """The tasks and the rules, then the results of the lab."""
    return [*document.results(measured, page), *LAB1.results(measured.lab, page)]


def tables(measured: StudentMeasured) -> dict[str, Records]:
    """Those of the lab, and the tasks."""
    return {"tasks": task_records(measured), **LAB1.tables(measured.lab)}


LAB = student_lab(
    StudentExperiment(
        number="1",
        file="MyOptimizer.py",
        parts=PARTS,
        measure=measure,
        findings=findings,
        takes=frozenset({"data", "data_dir", "runs"}),
        lab_plan=lab_plan,
        measure_lab=measure_lab,
    ),
    check=lambda plan: LAB1.check(plan.lab),
    figures=lambda measured: LAB1.figures(measured.lab),
    tables=tables,
    set_up=set_up,
    machine=lambda measured: LAB1.machine(measured.lab),
    results=results,
    closing=lambda measured, page: LAB1.closing(measured.lab, page),
)
