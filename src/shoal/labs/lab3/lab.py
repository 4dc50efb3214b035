"""From settings to a report: Phase 1, check; Phase 2, train; Phase 3, measure and judge; Phase 4, write."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal import data, models
from shoal.labs.folder import Outcome, Rows, claimed, outcome, report_folder, write_report
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
from shoal.labs.lab3.measure import Learnt, Measurements, measure
from shoal.labs.lab3.plan import Plan, plan_for
from shoal.labs.lab3.seen import check_divisions
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
        write_report(folder, document, pictures, _tables(measured), findings)
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


def _tables(measured: Measurements) -> dict[str, Rows]:
    """Every number of the report for other programs."""
    ways: list[tuple[str, int, Learnt]] = [("single", 1, measured.single)]
    ways += [(name, workers, each.learnt) for (name, workers), each in measured.divided.items()]
    ways += [(f"own-{way}", workers, each.learnt) for (way, workers), each in measured.own.items()]
    plan = measured.plan
    curves = [
        [name, workers, seed, epoch + 1, f"{loss:.6g}", f"{accuracy:.6g}"]
        for name, workers, learnt in ways
        for row, seed in enumerate(plan.seeds if name == "single" else plan.seeds_of(workers))
        for epoch, (loss, accuracy) in enumerate(zip(learnt.loss[row], learnt.accuracy[row], strict=True))
    ]
    results = [
        [name, workers, part.value, part.spread, learnt.final_loss.value, learnt.final_loss.spread]
        for name, workers, learnt in ways
        for part in (learnt.test_accuracy,)
    ]
    paces = [
        ("single, all cores", 1, measured.all_cores),
        ("single, one core", 1, measured.one_core),
        *((name, workers, each.pace) for (name, workers), each in measured.divided.items()),
        *(("random, one worker slow", workers, pace) for workers, pace in measured.slow_random.items()),
    ]
    speed = [
        [
            name,
            workers,
            pace.samples_per_s,
            pace.step_ms.value,
            pace.step_ms.spread,
            *(pace.against_all_cores, pace.against_one_core, pace.own, pace.wait, pace.move),
        ]
        for name, workers, pace in paces
        if pace
    ]
    coverage = [
        [name, workers, seed, *(seen.first.coverage, seen.first.overlap, seen.coverage[-1], seen.skew)]
        for (name, workers), each in measured.divided.items()
        for seed, seen in zip(plan.seeds_of(workers), each.seen, strict=True)
    ]
    coverage += [
        [f"own-{way}", workers, seed, own.coverage[row, 0], own.overlap.value, own.coverage[row, -1], ""]
        for (way, workers), own in measured.own.items()
        for row, seed in enumerate(plan.seeds_of(workers))
    ]
    differences = [
        *([f"global, {workers} workers", value] for workers, value in measured.from_single.items()),
        *([f"{name}, same samples", value] for name, value in measured.from_same_order.items()),
    ]
    return {
        "results": Rows(
            ["division", "workers", "test accuracy (1)", "spread (1)", "final loss (nat)", "spread (nat)"],
            results,
        ),
        "curves": Rows(
            ["division", "workers", "seed", "epoch", "training loss (nat)", "validation accuracy (1)"],
            curves,
        ),
        "speed": Rows(
            [
                "division",
                "workers",
                "samples per second (1/s)",
                "step (ms)",
                "spread (ms)",
                *("times all cores", "times one core", "own work (1)", "waiting (1)", "moving (1)"),
            ],
            speed,
        ),
        "coverage": Rows(
            [
                "division",
                "workers",
                "seed",
                *("coverage of the first epoch (1)", "overlap (1)", "coverage at the end (1)", "skew (1)"),
            ],
            coverage,
        ),
        "differences": Rows(["compared", "relative difference"], differences),
    }
