"""From settings to a report: Phase 1, check; Phase 2, train; Phase 3, measure and judge; Phase 4, write."""

from dataclasses import dataclass
from pathlib import Path

from shoal import data
from shoal.labs.folder import Outcome, Rows, claimed, outcome, report_folder, write_report
from shoal.labs.lab2 import document as report
from shoal.labs.lab2.branches import ALL, calls_of
from shoal.labs.lab2.experiment import run_all
from shoal.labs.lab2.figures import exchange_figure, fault_figure, loss_figure, pace_figure, stages_figure
from shoal.labs.lab2.findings import find
from shoal.labs.lab2.measure import Measurements, as_labelled, measure
from shoal.labs.lab2.plan import CONDITIONS, Plan, plan_for
from shoal.labs.machine import machine
from shoal.labs.pictures import draw_all
from shoal.labs.settings import command_of, earlier_runs
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words

PACKAGE = "shoal.labs.lab2"


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    workers: int = 2
    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0
    runs: str = ""
    """The runs/ folder of an earlier report: what was finished there is not trained again."""


def folder_for(settings: Settings) -> Path:
    """Where the report goes."""
    return report_folder(settings.out, f"lab2-{settings.workers}-workers")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    plan = plan_for(settings.workers, settings.quick, settings.seed)
    earlier = earlier_runs(settings.runs)
    return run_plan(plan, folder, command_of("2", settings), words, watch, earlier)


def run_plan(
    plan: Plan, folder: Path, command: str, words: Words, watch: Watch, earlier: Path | None = None
) -> Outcome:
    """Train everything a plan asks for and write the report into a new folder."""
    # Phase 1: whatever can be wrong is wrong before the first folder is made.
    data.load(plan.data)
    plan.runs("")
    with claimed(folder):
        # Phase 2
        watch.say(words("progress.begin", workers=plan.workers, folder=folder))
        runs = run_all(plan, folder / "runs", words, watch, earlier)
        # Phase 3
        measured = measure(runs)
        findings = find(measured)
        # Phase 4
        watch.say(words("progress.write"))
        pictures = draw_all(
            PACKAGE,
            words,
            {
                "exchange": lambda labels, font: exchange_figure(measured, labels, font),
                "loss": lambda labels, font: loss_figure(measured, labels, font),
                "stages": lambda labels, font: stages_figure(measured, labels, font),
                "pace": lambda labels, font: pace_figure(measured, labels, font),
                "faults": lambda labels, font: fault_figure(measured, labels, font),
            },
        )
        document = report.document(measured, command, machine(), findings, pictures, words)
        write_report(folder, document, pictures, _tables(measured), findings)
    return outcome(folder, report.time_header(words), report.time_rows(measured, words), findings, words)


def _tables(measured: Measurements) -> dict[str, Rows]:
    """Every number of the report for other programs."""
    exchange = [
        [
            condition,
            name,
            *(part for m in (t.wait_ms, t.move_ms, t.exchange_ms) for part in (m.value, m.spread)),
        ]
        for condition in CONDITIONS
        for name in ALL
        for t in (measured.branches[condition][name],)
    ]
    record = [
        [name, "+".join(sorted(calls_of(name))), "+".join(sorted(one.operations)), one.calls, one.sent, right]
        for name, one in measured.recorded.items()
        for right in (as_labelled(name, one),)
    ]
    paces = [
        [name, pace.samples_per_s.value, pace.samples_per_s.spread, rank, *(part.value for part in times)]
        for name, pace in measured.paces.items()
        for rank, times in enumerate(pace.ranks)
    ]
    seeds = measured.plan.seeds
    learnt = [
        [name, seed, accuracy, loss]
        for name, one in measured.learnt.items()
        for seed, accuracy, loss in zip(seeds, one.accuracies, one.losses, strict=True)
    ]
    faulty = [
        [fault, rule, seed, accuracy, one.stopped]
        for (fault, rule), one in measured.faulty.items()
        for seed, accuracy in zip(seeds, one.accuracies or ("",), strict=False)
    ]
    spreads = ["waiting", "moving", "exchange"]
    return {
        "exchange": Rows(
            [
                "condition",
                "branch",
                *(f"{part}{unit}" for part in spreads for unit in (" (ms)", " spread (ms)")),
            ],
            exchange,
        ),
        "record": Rows(
            [
                "branch",
                "label",
                "called",
                "calls per step",
                "sent in messages (bytes per step)",
                "as labelled",
            ],
            record,
        ),
        "pace": Rows(
            [
                "run",
                "samples per second (1/s)",
                "spread (1/s)",
                "rank",
                "own (ms)",
                "waiting (ms)",
                "moving (ms)",
            ],
            paces,
        ),
        "differences": Rows(["compared", "relative difference"], list(measured.differences.items())),
        "learnt": Rows(["aggregation", "seed", "test accuracy (1)", "final loss (nat)"], learnt),
        "faults": Rows(["fault", "rule", "seed", "test accuracy (1)", "stopped"], faulty),
    }
