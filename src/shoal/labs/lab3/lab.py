"""From settings to a report: Phase 1, check; Phase 2, train; Phase 3, measure and judge; Phase 4, write."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal import data, models
from shoal.labs.folder import Outcome, claimed, outcome, report_folder, write_report
from shoal.labs.lab3 import document as report
from shoal.labs.lab3.experiment import run_all
from shoal.labs.lab3.figures import (
    curve_names,
    curves_figure,
    owners_figure,
    samplers_figure,
    speed_figure,
)
from shoal.labs.lab3.findings import find
from shoal.labs.lab3.measure import Measurements, measure
from shoal.labs.lab3.plan import Plan, plan_for
from shoal.labs.lab3.seen import check_divisions
from shoal.labs.lab3.tables import tables
from shoal.labs.machine import machine
from shoal.labs.pictures import Draw, draw_all
from shoal.labs.settings import command_of, earlier_runs
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words

PACKAGE = "shoal.labs.lab3"


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    workers: str = "2,4"
    """Numbers of workers, with commas between."""
    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0
    runs: str = ""
    """The runs/ folder of an earlier report: what was finished there is not trained again."""


def folder_for(settings: Settings) -> Path:
    """Where the report goes."""
    return report_folder(settings.out, f"lab3-{settings.workers.replace(',', '-')}-workers")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    plan = plan_for(settings.workers, settings.quick, settings.seed)
    earlier = earlier_runs(settings.runs)
    return run_plan(plan, folder, command_of("3", settings), words, watch, earlier)


def run_plan(
    plan: Plan, folder: Path, command: str, words: Words, watch: Watch, earlier: Path | None = None
) -> Outcome:
    """Train everything a plan asks for and write the report into a new folder."""
    # Phase 1: whatever can be wrong is wrong before the first folder is made.
    dataset = data.load(plan.data)
    model = models.build(plan.model, dataset.input_shape, dataset.outputs, plan.first_seed)
    check_divisions(plan, dataset)
    plan.runs("")
    with claimed(folder):
        # Phase 2
        workers = ", ".join(map(str, plan.workers))
        watch.say(words("progress.begin", workers=workers, folder=folder))
        runs = run_all(plan, folder / "runs", words, watch, earlier)
        # Phase 3
        watch.say(words("progress.measure"))
        measured = measure(runs, dataset, sum(param.numel() for param in model.parameters()))
        findings = find(measured)
        # Phase 4
        watch.say(words("progress.write"))
        pictures = draw_all(PACKAGE, words, _draws(measured))
        document = report.document(measured, command, machine(), findings, pictures, words)
        write_report(folder, document, pictures, tables(measured), findings)
    return outcome(folder, report.result_header(words), report.result_rows(measured, words), findings, words)


def _draws(measured: Measurements) -> dict[str, Draw]:
    """The figures by name."""
    curves: dict[str, Draw] = {
        name: partial(curves_figure, measured, workers)
        for workers, name in curve_names(measured.plan.workers).items()
    }
    return {
        "owners": partial(owners_figure, measured),
        **curves,
        "speed": partial(speed_figure, measured),
        "samplers": partial(samplers_figure, measured),
    }
