"""From settings to a report: Phase 1, check; Phase 2, train; Phase 3, measure and judge; Phase 4, write."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal import data, models
from shoal.config.read import from_tree
from shoal.config.schema import DataConfig, LenetConfig
from shoal.errors import ConfigError, unknown
from shoal.labs.folder import Outcome, Rows, claimed, outcome, report_folder, write_report
from shoal.labs.lab1 import document as report
from shoal.labs.lab1.experiment import run_all
from shoal.labs.lab1.figures import loss_figure, sweep_figure
from shoal.labs.lab1.findings import find
from shoal.labs.lab1.measure import Measurements, measure
from shoal.labs.lab1.noise import noise_of
from shoal.labs.lab1.plan import DATA, FULL_VALIDATION, NAMES, QUICK_SAMPLES, QUICK_VALIDATION, Plan, plan_for
from shoal.labs.machine import machine
from shoal.labs.pictures import draw_all
from shoal.labs.settings import command_of, earlier_runs
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words

PACKAGE = "shoal.labs.lab1"


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    data: str = "digits"
    data_dir: str = ""
    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0
    runs: str = ""
    """The runs/ folder of an earlier report: what was finished there is not trained again."""


def folder_for(settings: Settings) -> Path:
    """Where the report goes."""
    return report_folder(settings.out, f"lab1-{settings.data}")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    plan = plan_for(_data_config(settings), settings.quick, settings.seed)
    earlier = earlier_runs(settings.runs)
    return run_plan(plan, folder, command_of("1", settings), words, watch, earlier)


def run_plan(
    plan: Plan, folder: Path, command: str, words: Words, watch: Watch, earlier: Path | None = None
) -> Outcome:
    """Train everything a plan asks for and write the report into a new folder."""
    # Phase 1: whatever can be wrong is wrong before the first folder is made.
    dataset = data.load(plan.data)
    model = models.build(LenetConfig(), dataset.input_shape, dataset.outputs, plan.first_seed)
    with claimed(folder):
        # Phase 2
        watch.say(words("progress.begin", data=plan.data.name, folder=folder))
        runs = run_all(plan, folder / "runs", words, watch, earlier)
        # Phase 3
        watch.say(words("progress.noise"))
        measured = measure(runs, [noise_of(path) for path in runs.final["sgd"][: 1 if plan.quick else None]])
        findings = find(measured)
        setup = report.SetUp(
            command=command,
            samples={
                "train": len(dataset.train),
                "validation": len(dataset.validation or ()),
                "test": len(dataset.test),
            },
            parameters=sum(param.numel() for param in model.parameters()),
            machine={**machine(), "device": str(measured.series["sgd"].runs[0].result["device"])},
        )
        # Phase 4
        watch.say(words("progress.write"))
        pictures = draw_all(
            PACKAGE,
            words,
            {
                "loss": lambda labels, font: loss_figure(measured, labels, font),
                "sweep": lambda labels, font: sweep_figure(measured, labels, font),
            },
        )
        document = report.document(plan, setup, measured, findings, pictures, words)
        write_report(folder, document, pictures, _tables(measured), findings)
    return outcome(folder, report.result_header(words), report.result_rows(measured, words), findings, words)


def _tables(measured: Measurements) -> dict[str, Rows]:
    """Every number of the report for other programs."""
    results = [
        [
            name,
            run.config.seed,
            measured.sweeps[name].best.rate,
            *(run.result[key] for key in ("test_accuracy", "test_loss", "steps")),
            run.samples,
            *(run.result[key] for key in ("seconds", "samples_per_s")),
        ]
        for name in NAMES
        for run in measured.series[name].runs
    ]
    sweep = [
        [
            name,
            trial.rate,
            "diverged" if trial.diverged else trial.validation_loss,
            trial == measured.sweeps[name].best,
        ]
        for name in NAMES
        for trial in measured.sweeps[name].trials
    ]
    curves = [
        [name, run.config.seed, *(f"{value:.6g}" for value in point)]
        for name in NAMES
        for run in measured.series[name].runs
        for point in zip(run.curve.steps, run.curve.samples, run.curve.seconds, run.curve.loss, strict=True)
    ]
    result_header = [
        "optimizer",
        "seed",
        "learning rate",
        "test accuracy (1)",
        "test loss (nat)",
        "steps",
        "samples",
        "seconds (s)",
        "samples per second (1/s)",
    ]
    return {
        "results": Rows(result_header, results),
        "sweep": Rows(["optimizer", "learning rate", "validation loss (nat)", "chosen"], sweep),
        "curves": Rows(
            ["optimizer", "seed", "steps before", "samples before", "seconds before (s)", "loss (nat)"],
            curves,
        ),
    }


def _data_config(settings: Settings) -> DataConfig:
    if settings.data not in DATA:
        raise ConfigError(unknown("data set of this lab", settings.data, DATA))
    if settings.data_dir and settings.data == "digits":
        raise ConfigError(
            "--data-dir has no use for digits, which lie inside the package",
            f"Choose the data set that lies in {settings.data_dir}: --data mnist or --data fashion-mnist.",
        )
    validation = QUICK_VALIDATION if settings.quick else FULL_VALIDATION
    options: dict[str, Any] = {"name": settings.data, "validation": validation}
    if settings.data_dir:
        options["dir"] = settings.data_dir
    if settings.quick:
        options["samples"] = QUICK_SAMPLES
    return from_tree({"data": options}).data
