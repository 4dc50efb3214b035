"""From settings to a report: Phase 1, check; Phase 2, measure; Phase 3, judge; Phase 4, write."""

from dataclasses import dataclass
from pathlib import Path

from shoal.labs.autograd import document as report
from shoal.labs.autograd.contest import Contest, one_thread
from shoal.labs.autograd.experiment import Measurements, measure_all
from shoal.labs.autograd.figures import caching_figure, chain_figure, graph_svg
from shoal.labs.autograd.findings import find
from shoal.labs.autograd.plan import Plan, plan_for
from shoal.labs.folder import Outcome, Rows, claimed, outcome, report_folder, write_report
from shoal.labs.machine import machine
from shoal.labs.pictures import draw_all
from shoal.labs.settings import command_of
from shoal.labs.watch import Watch
from shoal.labs.words import Words, load_words

PACKAGE = "shoal.labs.autograd"


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0


def folder_for(settings: Settings) -> Path:
    """Where the report goes."""
    return report_folder(settings.out, "lab-autograd")


def run(settings: Settings, folder: Path, watch: Watch) -> Outcome:
    """The lab as the command line runs it."""
    words = load_words(PACKAGE, settings.lang)
    command = command_of("autograd", settings)
    return run_plan(plan_for(settings.quick, settings.seed), folder, command, words, watch)


def run_plan(plan: Plan, folder: Path, command: str, words: Words, watch: Watch) -> Outcome:
    """Measure everything a plan asks for and write the report into a new folder."""
    with claimed(folder):
        watch.say(words("progress.begin", folder=folder))
        measured = measure_all(plan, words, watch)
        findings = find(measured)
        watch.say(words("progress.write"))
        with one_thread():
            facts = machine()
        pictures = draw_all(
            PACKAGE,
            words,
            {
                "graph": lambda *_: graph_svg(measured.course.svg, words),
                "caching": lambda labels, font: caching_figure(measured.caching.recurring, labels, font),
                "chain": lambda labels, font: chain_figure(measured.chains, labels, font),
            },
        )
        document = report.document(plan, command, facts, measured, findings, pictures, words)
        write_report(folder, document, pictures, _tables(measured), findings)
    return outcome(folder, report.time_header(words), report.time_rows(measured, words), findings, words)


def _tables(measured: Measurements) -> dict[str, Rows]:
    """Every number of the report for other programs."""
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
    return {
        "times": Rows(["experiment", "rival", "round", "seconds (s)"], times),
        "passes": Rows(
            ["network", "after", "operations", "bytes written", "multiplications in matrix products"], passes
        ),
        "memory": Rows(["network", "engine", "most bytes held at once"], memory),
    }
