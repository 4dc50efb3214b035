"""The frame of all labs: `run_lab` takes a lab's spec from settings to a written report.

A lab is a `LabSpec`: what is particular to it, and nothing else. The frame does what all labs have in common:

    Phase 1, check     errors are found before a folder is made
    Phase 2, train     the runs that the plan asks for, or their copies from an earlier report
    Phase 3, measure   run folders become numbers, numbers become verdicts
    Phase 4, write     figures, tables, and the page
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_args

from shoal.kit.findings import Verdict
from shoal.kit.page import (
    Judgement,
    Paragraph,
    Records,
    Table,
    claimed,
    report_folder,
)
from shoal.kit.runs import Watch, earlier_runs, machine
from shoal.kit.settings import RunConfig
from shoal_labs.catalogue import lab_of
from shoal_labs.choices import with_choices
from shoal_labs.claims import Claim, Findings, judged
from shoal_labs.folder import write_report
from shoal_labs.page.page import machine_table, opening
from shoal_labs.page.pictures import Draw, draw_all
from shoal_labs.page.table import records
from shoal_labs.page.template import Content, Page, read_template, within
from shoal_labs.runs import Runs
from shoal_labs.settings import LabSettings, command_of
from shoal_labs.timing.busy import trusted
from shoal_labs.words import Words, load_words


class LabPlan(Protocol):
    """What every lab's plan says."""

    @property
    def quick(self) -> bool:
        """Whether this is the short version of the experiment."""
        ...


Plan = TypeVar("Plan", bound=LabPlan)
Measured = TypeVar("Measured")


def _nothing(_: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class LabSpec(Generic[Plan, Measured]):
    """What is particular to a lab."""

    number: str
    """Its name on the command line."""
    plan: Callable[[Any], Plan]
    """The experiment; raises ConfigError for settings that cannot be used."""
    subject: Callable[[Plan], Mapping[str, object]] = _nothing
    """The values in the words `title` and `progress.begin`."""
    check: Callable[[Plan], object] = _nothing
    """Raises the errors that can be found before training, such as missing data."""
    runs: Callable[[Plan], Mapping[str, RunConfig]] = _nothing
    """The runs to train, by name."""
    measure: Callable[[Plan, Runs], Measured]
    """Reads the runs; a lab whose runs depend on each other trains them here."""
    claims: Sequence[Claim[Measured]] = ()
    figures: Callable[[Measured], Mapping[str, Draw]]
    drawings: Mapping[str, Draw] = field(default_factory=dict[str, Draw])
    """Figures of the principle, which need no measurement."""
    content: Callable[[Measured], Content]
    """What fills the places of the page's template."""
    last_table: str
    """The name of the table that the command line shows at the end."""
    machine: Callable[[Measured], Mapping[str, str]] = _nothing
    """Facts about the machine that only this lab knows, or knows better."""
    tables: Callable[[Measured], Mapping[str, Records]] = _nothing
    """Further tables for programs, such as curves: the page's own are written as well."""
    findings: Callable[[Measured], Findings] | None = None
    """The findings by claim, where they are not those of `claims`."""
    more_words: str = ""
    """A package whose words replace the lab's own, and whose page may have sections of the lab's."""
    whole_lab: bool = False
    """Whether that page has all of them."""
    whole: bool = False
    """Whether nothing stays of a report that could not be finished."""

    def template(self, lang: str) -> str:
        """The template of its page."""
        own = read_template(self.more_words or self.package, lang)
        return within(own, read_template(self.package, lang), self.whole_lab) if self.more_words else own

    @property
    def package(self) -> str:
        """Where its modules and words are."""
        return lab_of(self.number).package

    def words(self, lang: str) -> Words:
        """Its words in a language."""
        return load_words(self.package, lang, *filter(None, [self.more_words]))


@dataclass(frozen=True)
class LabResult:
    """What the command line shows at the end."""

    folder: Path
    table: Table
    findings: Sequence[tuple[str, str]]
    """Verdict and claim, in words."""


def load_lab(number: str, solution: bool = False) -> LabSpec[Any, Any]:
    """The lab of a number or name, of our code or of a student's solution; imports torch."""
    package = lab_of(number).package
    if solution:
        return import_module(f"shoal_labs.student.experiments.{package.rpartition('.')[2]}").LAB
    return import_module(f"{package}.lab").LAB


def folder_for(lab: LabSpec[Any, Any], settings: LabSettings) -> Path:
    """The folder of a report."""
    stem = f"lab{lab.number}" if lab.number.isdecimal() else f"lab-{lab.number}"
    return report_folder(
        str(settings.out or ""),
        "-".join(filter(None, (stem, "solution" if settings.given("solution") else settings.variant))),
    )


def earlier_of(settings: LabSettings) -> Path | None:
    """The runs/ folder of an earlier report, if that or the report's own folder was given."""
    runs = settings.given("runs")
    return earlier_runs(runs) if runs else None


def run_lab(lab: LabSpec[Any, Any], settings: LabSettings, folder: Path, watch: Watch) -> LabResult:
    """Run a lab as the command line does."""
    words = lab.words(settings.lang)
    plan, earlier = with_choices(lab.plan(settings), settings), earlier_of(settings)
    return run_plan(lab, plan, folder, command_of(lab.number, settings), words, watch, earlier)


def run_plan(
    lab: LabSpec[Plan, Any],
    plan: Plan,
    folder: Path,
    command: str,
    words: Words,
    watch: Watch,
    earlier: Path | None = None,
) -> LabResult:
    """Make the report of a plan in a new folder."""
    # Phase 1: check
    lab.check(plan)
    configs = lab.runs(plan)
    runs = Runs(folder / "runs", words, watch, earlier)
    with claimed(folder, lab.whole):
        # Phase 2: train
        runs.say("progress.begin", folder=folder, **lab.subject(plan))
        runs.train_all(configs)
        # Phase 3: measure
        runs.say("progress.measure")
        measured = lab.measure(plan, runs)
        busy = runs.busy()
        # Phase 4: write
        runs.say("progress.write")
        if busy:
            runs.say("intro.busy", part=100 * busy)
        return _write_page(lab, plan, measured, command, runs, busy)


def _write_page(
    lab: LabSpec[Plan, Measured], plan: Plan, measured: Measured, command: str, runs: Runs, busy: float
) -> LabResult:
    """Fill the lab's template, and write the page with its figures and tables."""
    words, folder = runs.words, runs.folder.parent
    findings = trusted(lab.findings(measured) if lab.findings else judged(lab.claims, measured), busy)
    verdicts = [finding.verdict for each in findings.values() for finding in each]
    content = lab.content(measured)
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    page = Page(
        replace(
            content,
            values={**lab.subject(plan), **content.values},
            each={"quick": [{}] * plan.quick, **content.each},
        ),
        findings,
        draw_all(words, {**lab.drawings, **lab.figures(measured)}),
        words,
        {
            "opening": opening(command, runs, busy),
            "machine": [machine_table({**machine(), **lab.machine(measured)}, words)],
            "counts": [Paragraph(words("analysis.counts", **counts))],
        },
    )
    document, tables = page.document(lab.template(words.lang))
    own = {name: records(table) for name, table in content.tables.items()}
    write_report(folder, document, page.pictures, {**own, **lab.tables(measured)}, findings)
    blocks = [block for block in document.blocks if isinstance(block, Judgement)]
    return LabResult(folder, tables[lab.last_table], [(block.verdict_words, block.claim) for block in blocks])
