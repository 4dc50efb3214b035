"""From settings to a report: Phase 1, check; Phase 2, measure; Phase 3, judge; Phase 4, write."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from shoal.errors import ConfigError
from shoal.labs.autograd import document as report
from shoal.labs.autograd.contest import Contest, one_thread
from shoal.labs.autograd.experiment import Measurements, measure_all
from shoal.labs.autograd.figures import caching_figure, chain_figure, graph_svg
from shoal.labs.autograd.findings import find
from shoal.labs.autograd.plan import Plan, plan_for
from shoal.labs.autograd.raster import drawing
from shoal.labs.machine import machine
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words
from shoal.report.figures import Drawing, chinese_font
from shoal.report.findings import Finding
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv

PACKAGE = "shoal.labs.autograd"
REPORTS = "reports"


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What the command line shows at the end."""

    folder: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    findings: Sequence[tuple[str, str]]
    """Verdict and claim, in words."""


def folder_for(settings: Settings) -> Path:
    """Where the report goes: the folder asked for, or one named after the time."""
    return Path(settings.out or f"{REPORTS}/lab-autograd-{datetime.now():%Y%m%d-%H%M%S}")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    return run_plan(plan_for(settings.quick, settings.seed), folder, _command(settings), words, watch)


def run_plan(plan: Plan, folder: Path, command: str, words: Words, watch: Watch) -> Outcome:
    """Measure everything a plan asks for and write the report into a new folder."""
    with _claimed(folder):
        watch.say(words("progress.begin", folder=folder))
        measured = measure_all(plan, words, watch)
        findings = find(measured)
        with one_thread():
            setup = report.SetUp(command, machine())
        watch.say(words("progress.write"))
        _write(folder, plan, setup, measured, findings, words)
    judged = [report.judgement(finding, words) for finding in findings]
    return Outcome(
        folder,
        report.time_header(words),
        report.time_rows(measured, words),
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
    svg = graph_svg(measured.course.svg, words)
    graph = drawing(graph_svg(measured.course.svg, labels), font)
    caching = caching_figure(measured.caching.recurring, labels, font)
    chain = chain_figure(measured.chains, labels, font)
    pictures = report.Pictures(graph.png, caching.png, chain.png, in_english)
    document = report.document(plan, setup, measured, findings, pictures, words)
    write_files(
        folder,
        {
            report.GRAPH_FIGURE.with_suffix(".svg"): svg,
            **_figure_files(report.GRAPH_FIGURE, graph),
            **_figure_files(report.CACHING_FIGURE, caching),
            **_figure_files(report.CHAIN_FIGURE, chain),
            **_tables(measured, findings),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def _figure_files(png: PurePosixPath, picture: Drawing) -> dict[PurePosixPath, str | bytes]:
    return {png: picture.png, png.with_suffix(".pdf"): picture.pdf}


def _tables(measured: Measurements, findings: Sequence[Finding]) -> dict[PurePosixPath, str]:
    """Every number of the report for other programs, in English whatever the report's language is."""
    networks = measured.networks.values()
    contests: dict[str, Contest] = {f"{network.name} step": network.step for network in networks}
    contests |= {
        f"{network.name} forward {samples}": one
        for network in networks
        for samples, one in network.forward.items()
    }
    contests |= {f"recurring {tapes.count}": tapes.time for tapes in measured.caching.recurring}
    contests |= {f"distinct {measured.caching.distinct.count}": measured.caching.distinct.time}
    contests |= {f"chain {one.size}": one.time for one in measured.chains}
    times = [
        [experiment, rival, number, f"{second:.6g}"]
        for experiment, one in contests.items()
        for rival, seconds in one.seconds.items()
        for number, second in enumerate(seconds)
    ]
    passes = [
        [network.name, stage.name, stage.num_operations, stage.num_bytes, stage.num_multiplications]
        for network in networks
        for stage in network.stages
    ]
    memory = [[network.name, engine, peak] for network in networks for engine, peak in network.peak.items()]
    judged = [
        [f.claim, f.verdict, "; ".join(f"{key} = {value}" for key, value in f.numbers.items())]
        for f in findings
    ]
    return {
        PurePosixPath("tables/times.csv"): to_csv(["experiment", "rival", "round", "seconds (s)"], times),
        PurePosixPath("tables/passes.csv"): to_csv(
            ["network", "after", "operations", "bytes written", "multiplications in matrix products"], passes
        ),
        PurePosixPath("tables/memory.csv"): to_csv(["network", "engine", "most bytes held at once"], memory),
        PurePosixPath("tables/findings.csv"): to_csv(["claim", "verdict", "numbers"], judged),
    }


def _command(settings: Settings) -> str:
    words = ["shoal lab autograd", *["--quick"] * settings.quick]
    return " ".join([*words, f"--lang {settings.lang}", f"--seed {settings.seed}"])


@contextmanager
def _claimed(folder: Path) -> Generator[None]:
    """Make the report's folder before anything is measured; one in use is not touched, an empty one not left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty", "Choose another one with --out.")
        with TemporaryDirectory(dir=folder):
            pass  # it can be written into
    except OSError as error:
        raise ConfigError(
            f"cannot write the report folder {folder}: {error.strerror}", "Choose another one with --out."
        ) from None
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise
