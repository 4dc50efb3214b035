"""Lab 1 with the student's GD, SGD and Adam: the lab's whole experiment, and some steps against torch's rules."""

from collections.abc import Sequence
from dataclasses import fields, replace

from shoal.kit.base import ConfigError, DivergedError
from shoal.kit.findings import Finding
from shoal.kit.settings import to_plain
from shoal_labs.claims import judged
from shoal_labs.lab1.content import content as lab1_content
from shoal_labs.lab1.lab import LAB as LAB1
from shoal_labs.lab1.measure import Lab1Measurements
from shoal_labs.lab1.plan import NAMES, Lab1Plan
from shoal_labs.page.template import Content
from shoal_labs.runs import Runs
from shoal_labs.settings import Lab1Settings
from shoal_labs.student.claims import equal
from shoal_labs.student.content import content
from shoal_labs.student.host import StudentHost
from shoal_labs.student.nodes.lab1 import EQUAL_RATES, difference_from_rule
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan
from shoal_labs.student.spec import StudentExperiment, by_claim, student_lab
from shoal_labs.student.submission import Submission, why_wrong

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
            cells={"difference": difference},
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


def findings(measured: StudentMeasured) -> list[Finding]:
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


def all_findings(measured: StudentMeasured) -> dict[str, list[Finding]]:
    """About the code, and those of the lab with its numbers."""
    return {**by_claim(findings(measured)), **judged(LAB1.claims, measured.lab)}


def whole_content(measured: StudentMeasured) -> Content:
    """What fills the page about the code, and what fills the lab's."""
    own, lab = content(measured, by_claim(findings(measured))), lab1_content(measured.lab)
    parts = [{**getattr(own, field.name), **getattr(lab, field.name)} for field in fields(Content)]
    return Content(*parts)


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
    tables=lambda measured: LAB1.tables(measured.lab),
    content=whole_content,
    findings=all_findings,
    last_table="results",
    whole_lab=True,
    machine=lambda measured: LAB1.machine(measured.lab),
)
