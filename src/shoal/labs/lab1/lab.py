"""From settings to a report: Phase 1, check; Phase 2, train; Phase 3, measure and judge; Phase 4, write."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from shoal import data, models
from shoal.config.read import from_tree
from shoal.config.schema import DataConfig, LenetConfig
from shoal.errors import ConfigError, unknown
from shoal.labs.lab1 import document as report
from shoal.labs.lab1.experiment import run_all
from shoal.labs.lab1.figures import loss_figure, sweep_figure
from shoal.labs.lab1.findings import find
from shoal.labs.lab1.measure import Measurements, measure
from shoal.labs.lab1.noise import noise_of
from shoal.labs.lab1.plan import DATA, FULL_VALIDATION, NAMES, QUICK_SAMPLES, QUICK_VALIDATION, Plan, plan_for
from shoal.labs.machine import machine
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words
from shoal.report.figures import Drawing, chinese_font
from shoal.report.findings import Finding
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv

PACKAGE = "shoal.labs.lab1"
REPORTS = "reports"


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


@dataclass(frozen=True)
class Outcome:
    """What the command line shows at the end."""

    folder: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    findings: Sequence[tuple[str, str]]
    """Verdict and claim, in words."""


def folder_for(settings: Settings) -> Path:
    """Where the report goes: the folder asked for, or one named after the data and the time."""
    return Path(settings.out or f"{REPORTS}/lab1-{settings.data}-{datetime.now():%Y%m%d-%H%M%S}")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    plan = plan_for(_data_config(settings), settings.quick, settings.seed)
    return run_plan(plan, folder, _command(settings), words, watch, _earlier(settings))


def run_plan(
    plan: Plan, folder: Path, command: str, words: Words, watch: Watch, earlier: Path | None = None
) -> Outcome:
    """Train everything a plan asks for and write the report into a new folder."""
    # Phase 1: whatever can be wrong is wrong before the first folder is made.
    dataset = data.load(plan.data)
    model = models.build(LenetConfig(), dataset.input_shape, dataset.outputs, plan.first_seed)
    _claim(folder)
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
        device=str(measured.series["sgd"].runs[0].result["device"]),
        machine=machine(),
    )
    # Phase 4
    watch.say(words("progress.write"))
    _write(folder, plan, setup, measured, findings, words)
    judged = [report.judgement(finding, words) for finding in findings]
    return Outcome(
        folder,
        report.result_header(words),
        report.result_rows(measured, words),
        [(block.verdict_words, block.claim) for block in judged],
    )


def _write(
    folder: Path,
    plan: Plan,
    setup: report.SetUp,
    measured: Measurements,
    findings: Sequence[Finding],
    words: Words,
) -> None:
    font = chinese_font() if words.lang == "zh" else None
    in_english = words.lang == "zh" and font is None
    labels = load_words(PACKAGE, "en") if in_english else words
    loss, sweep = loss_figure(measured, labels, font), sweep_figure(measured, labels, font)
    pictures = report.Pictures(loss.png, sweep.png, in_english)
    document = report.document(plan, setup, measured, findings, pictures, words)
    write_files(
        folder,
        {
            **_figure_files(report.LOSS_FIGURE, loss),
            **_figure_files(report.SWEEP_FIGURE, sweep),
            **_tables(measured, findings),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def _figure_files(png: PurePosixPath, drawing: Drawing) -> dict[PurePosixPath, str | bytes]:
    return {png: drawing.png, png.with_suffix(".pdf"): drawing.pdf}


def _tables(measured: Measurements, findings: Sequence[Finding]) -> dict[PurePosixPath, str]:
    """Every number of the report for other programs, in English whatever the report's language is."""
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
    judged = [
        [f.claim, f.verdict, "; ".join(f"{key} = {value}" for key, value in f.numbers.items())]
        for f in findings
    ]
    result_header = [
        "optimizer",
        "seed",
        "learning rate",
        "test accuracy (1)",
        "test loss (nat)",
        "steps",
        "samples",
    ]
    return {
        PurePosixPath("tables/results.csv"): to_csv(
            [*result_header, "seconds (s)", "samples per second (1/s)"], results
        ),
        PurePosixPath("tables/sweep.csv"): to_csv(
            ["optimizer", "learning rate", "validation loss (nat)", "chosen"], sweep
        ),
        PurePosixPath("tables/curves.csv"): to_csv(
            ["optimizer", "seed", "steps before", "samples before", "seconds before (s)", "loss (nat)"],
            curves,
        ),
        PurePosixPath("tables/findings.csv"): to_csv(["claim", "verdict", "numbers"], judged),
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


def _earlier(settings: Settings) -> Path | None:
    if settings.runs and not Path(settings.runs).is_dir():
        raise ConfigError(
            f"--runs {settings.runs} is not a folder", "Give the runs/ folder of an earlier report."
        )
    return Path(settings.runs) if settings.runs else None


def _command(settings: Settings) -> str:
    words = ["shoal lab 1", f"--data {settings.data}"]
    words += [f"--data-dir {settings.data_dir}"] * bool(settings.data_dir) + ["--quick"] * settings.quick
    return " ".join([*words, f"--lang {settings.lang}", f"--seed {settings.seed}"])


def _claim(folder: Path) -> None:
    """Make the report's folder; one that is in use is not touched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty", "Choose another one with --out.")
        (folder / "runs").mkdir()
    except OSError as error:
        raise ConfigError(
            f"cannot write the report folder {folder}: {error.strerror}", "Choose another one with --out."
        ) from None
