"""A student's code as a lab for the frame: checked first, then measured, then reported like every lab."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from shoal.kit.base import ConfigError
from shoal.kit.findings import Finding
from shoal_labs.frame import LabSpec, load_lab
from shoal_labs.runs import Runs
from shoal_labs.settings import LabSettings
from shoal_labs.student.claims import NAMES
from shoal_labs.student.content import content, tables
from shoal_labs.student.figures import figures
from shoal_labs.student.host import StudentHost, stopped_by
from shoal_labs.student.part import FULL, QUICK, StudentMeasured, StudentPart, StudentPlan
from shoal_labs.student.submission import (
    Submission,
    TaskVerdict,
    check_submission,
    read_submission,
    verdicts_on,
)
from shoal_labs.words import Words

WORDS = "shoal_labs.student"
ALWAYS = frozenset({"quick", "lang", "out", "seed", "solution", "quiet", "open"})
"""Settings that every report of a student's code takes."""


@dataclass(frozen=True, kw_only=True)
class StudentExperiment:
    """What is measured of a student's code in one lab."""

    number: str
    file: str
    """The student's file whose code runs."""
    also: tuple[str, ...] = ()
    """Files with tasks that it imports."""
    parts: Mapping[str, tuple[str, ...]]
    """What the student wrote, each with its tasks in the check."""
    measure: Callable[[StudentPlan, Sequence[str], StudentHost, Runs], Mapping[str, StudentPart]]
    """The parts that were written."""
    findings: Callable[[StudentMeasured], Sequence[Finding]]
    takes: frozenset[str] = frozenset()
    """Settings of the lab that it uses."""
    stops: bool = True
    """Whether code that stops with an error makes no report; a program that is watched can be reported on."""
    lab_plan: Callable[[Any, Submission], Any] = lambda _settings, _submission: None
    """The lab's own plan with the student's code, where the lab's whole experiment can run with it."""
    measure_lab: Callable[[StudentPlan, Runs], Any] = lambda _plan, _runs: None
    """What that experiment measures."""


def student_lab(experiment: StudentExperiment, **more: Any) -> LabSpec[StudentPlan, StudentMeasured]:
    """The lab of an experiment; `more` replaces fields of the spec."""

    def plan(settings: LabSettings) -> StudentPlan:
        refuse_unused(settings, experiment.takes)
        submission = read_submission(
            experiment.number, settings.given("solution"), experiment.file, experiment.also
        )
        size = QUICK if settings.quick else FULL
        own = experiment.lab_plan(settings, submission)
        return StudentPlan(submission, size, settings.seed, settings.quick, own)

    spec: dict[str, Any] = {
        "number": experiment.number,
        "plan": plan,
        "subject": lambda plan: {
            "number": experiment.number,
            "solution": plan.submission.folder,
            "file": experiment.file,
        },
        "measure": lambda plan, runs: measure(experiment, plan, runs),
        "findings": lambda measured: by_claim(experiment.findings(measured)),
        "figures": figures,
        "drawings": load_lab(experiment.number).drawings,
        "tables": tables,
        "content": lambda measured: content(measured, by_claim(experiment.findings(measured))),
        "last_table": "facts",
        "more_words": WORDS,
        "whole": True,
    }
    return LabSpec(**{**spec, **more})


def by_claim(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The findings about every part, by the names of the claims; none where a claim was not made."""
    found: dict[str, list[Finding]] = {name: [] for name in NAMES}
    for finding in findings:
        found[finding.claim].append(finding)
    return found


def refuse_unused(settings: LabSettings, takes: frozenset[str]) -> None:
    """Refuse a flag that the report of a student's code does not use."""
    for field in fields(settings):
        if field.name not in ALWAYS | takes and getattr(settings, field.name) != field.default:
            flag = f"--{field.name.replace('_', '-')}"
            raise ConfigError(f"{flag} has no effect with --solution in this lab", f"Leave {flag} out.")


def measure(experiment: StudentExperiment, plan: StudentPlan, runs: Runs) -> StudentMeasured:
    """Check every task, then measure what can run."""
    runs.say("progress.checking")
    verdicts = check_submission(plan.submission, runs.words)
    names = usable(experiment, plan.submission, verdicts, runs.words)
    host = runs.host = StudentHost(plan.submission, runs.words)
    parts = experiment.measure(plan, names, host, runs)
    return StudentMeasured(plan, parts, verdicts, experiment.measure_lab(plan, runs))


def usable(
    experiment: StudentExperiment, submission: Submission, verdicts: Sequence[TaskVerdict], words: Words
) -> list[str]:
    """The parts that were written; a ConfigError if one of them cannot run, or if there is none."""
    names: list[str] = []
    not_written: list[str] = []
    for name, tasks in experiment.parts.items():
        found = verdicts_on(tasks, verdicts)
        if experiment.stops and (stopping := [verdict for verdict in found if verdict.stops]):
            raise stopped_by(submission, reasons(stopping), words)
        still_open = [verdict for verdict in found if verdict.word == "open"]
        not_written += [task for verdict in still_open for task in verdict.tasks]
        written = not still_open if experiment.stops else len(still_open) < len(found)
        if found and written:
            names.append(name)
    if not names:
        raise ConfigError(
            f"{submission.file}: nothing can be trained yet; tasks that are not written: {', '.join(not_written)}",
            words("own.alone", number=submission.number, folder=submission.folder),
        )
    return names


def reasons(stopping: Sequence[TaskVerdict]) -> list[str]:
    """Why tasks stop; one sentence for all tasks that stop for the same reason."""
    tasks: dict[str, list[str]] = {}
    for verdict in stopping:
        tasks.setdefault(verdict.why, []).extend(verdict.tasks)
    return [f"{', '.join(names)}: {why}" for why, names in tasks.items()]
