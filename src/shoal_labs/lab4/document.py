"""The sections of the report that are particular to the lab."""

from typing import Any

from shoal.events.clocks import BUSY
from shoal.report.document import Block, Bullets, Code, Formula, Paragraph, Table
from shoal.report.findings import Measured, of_samples
from shoal.strategies.pipeline import schedules
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.timing import UNIT_TIMES
from shoal.strategies.rpc.rpc import Rpc
from shoal.strategies.tensor import linear
from shoal_labs.lab4.figures import label_of
from shoal_labs.lab4.measure import Lab4Measurements, Way
from shoal_labs.lab4.plan import BATCH_SIZE, MICROBATCHES, MOMENTUM, RATE, SCHEDULES, STAGES
from shoal_labs.numbers import scientific
from shoal_labs.page.page import Page, source

SHOWN = {
    "rpc": Rpc._step,  # pyright: ignore[reportPrivateUsage]
    "gpipe": schedules.gpipe,
    "1f1b": schedules._one_f_one_b_pairs,  # pyright: ignore[reportPrivateUsage]
    "tensor": linear.ColumnLinear,
}
"""The code that the report prints."""


def principle(page: Page) -> list[Block]:
    """What model parallelism is, how the model can be divided, and what limits the gain."""
    return [
        Paragraph(page("principle.problem")),
        Formula(page("principle.formula")),
        Paragraph(page("principle.equal")),
        *page.parts("principle", ["ways"]),
        Bullets([page(f"explained.{name}") for name in ("rpc", *SCHEDULES, "tensor")]),
        *page.parts("principle", ["bubble"]),
        Formula(page("principle.bubble_formula")),
        Paragraph(page("principle.bound")),
        Formula(page("principle.bound_formula")),
        *page.parts("principle", ["pays"]),
    ]


def code(page: Page) -> list[Block]:
    """What ran, from the source itself."""
    return [Code(source(what), page(f"code.{name}")) for name, what in SHOWN.items()]


def set_up(measured: Lab4Measurements, page: Page) -> list[Block]:
    """Data, model, stages, runs."""
    plan, size = measured.plan, measured.plan.size
    sentences = [
        page("setup.data", data=plan.data.name, **measured.num_samples),
        page("setup.model", model="lenet", parameters=measured.parameters),
        page(
            "setup.training",
            batch=BATCH_SIZE,
            rate=RATE,
            momentum=MOMENTUM,
            epochs=page.words.counted("epoch", size.epochs),
            timed=page.words.counted("epoch", size.timed_epochs),
        ),
        page(
            "setup.stages",
            workers=plan.workers,
            cuts=STAGES[plan.workers],
            rpc_cuts=STAGES[plan.rpc_stages],
        ),
        page("setup.microbatches", microbatches=MICROBATCHES, samples=BATCH_SIZE // MICROBATCHES),
        page(
            "setup.times",
            cores=plan.cores,
            rounds=plan.size.rounds,
            rpc_rounds=plan.size.rpc_rounds,
            steps=plan.size.round_steps,
        ),
        page("setup.equal"),
    ]
    crowded = [Paragraph(page("setup.crowded", workers=plan.workers, cores=plan.cores))]
    busy = [Paragraph(page("setup.busy", part=100 * measured.busiest))]
    return [
        Bullets(sentences),
        *(crowded if plan.workers > plan.cores else []),
        *(busy if measured.busiest > BUSY else []),
    ]


def results(measured: Lab4Measurements, page: Page) -> list[Block]:
    """All results, in the order of the questions."""
    return [
        *comparison(measured, page),
        *times(measured, page),
        *timelines(measured, page),
        *microbatches(measured, page),
        *cuts(measured, page),
    ]


def comparison(measured: Lab4Measurements, page: Page) -> list[Block]:
    """Every way side by side: accuracy, time, memory, bytes, equality."""
    columns = ("way", "accuracy", "step", "memory", "sent", "difference")
    rows = [_row(name, measured, page) for name in ("all-cores", *measured.plan.ways)]
    return [
        *page.section("comparison"),
        page.table("comparison", page.header("comparison", *columns), rows),
        page.figure("curves", "comparison"),
    ]


def _row(name: str, measured: Lab4Measurements, page: Page) -> list[str]:
    way = measured.ways[name]
    return [
        label_of(name, page.words),
        f"{_test_accuracy(name, measured):.2f}" if name in measured.learnt else "–",
        f"{way.step_ms:.2f}",
        _saved_kib(way),
        f"{way.sent_bytes / 2**10:,.0f}",
        scientific(way.first_step) if name != "single" else "–",
    ]


def _test_accuracy(name: str, measured: Lab4Measurements) -> Measured:
    """In percent, with its uncertainty."""
    return of_samples(measured.learnt[name].test_accuracy, measured.num_samples["test"]).scaled(100)


def times(measured: Lab4Measurements, page: Page) -> list[Block]:
    """What each worker does in a step."""
    rows = [
        [
            label_of(name, page.words),
            str(rank.rank),
            *(f"{100 * part:.0f}" for part in (rank.own, rank.move, rank.wait)),
            f"{rank.own * measured.ways[name].step_ms.value:.2f}",
        ]
        for name in measured.plan.ways
        for rank in measured.ways[name].ranks
    ]
    header = page.header("times", "way", "rank", "own", "move", "wait", "work")
    return [*page.section("times"), page.figure("times"), page.table("times", header, rows)]


def timelines(measured: Lab4Measurements, page: Page) -> list[Block]:
    """The schedules: what happened in a step, above what would have happened if messages took no time."""
    blocks = page.section("timelines", microbatches=MICROBATCHES)
    for name in SCHEDULES:
        values = {"schedule": label_of(name, page.words)}
        blocks += [
            page.figure(f"{kind}-{name}", f"timelines_{kind}", **values) for kind in ("measured", "ideal")
        ]
    columns = ("schedule", "step", "ideal", "bubble", "ideal_bubble", "formula", "live")
    rows: list[list[str]] = []
    for name in SCHEDULES:
        pipelined = measured.pipelined[name]
        formula = FORMULAS[name].bubble_of(measured.plan.workers, MICROBATCHES, UNIT_TIMES)
        rows.append(
            [
                label_of(name, page.words),
                f"{pipelined.makespan:.2f}",
                f"{pipelined.ideal.makespan:.2f}",
                f"{measured.bubble(name).scaled(100):.0f}",
                f"{100 * pipelined.ideal.bubble:.0f}",
                f"{100 * formula:.0f}",
                " / ".join(map(str, pipelined.live)),
            ]
        )
    return [*blocks, page.table("timelines", page.header("timelines", *columns), rows)]


def microbatches(measured: Lab4Measurements, page: Page) -> list[Block]:
    """The bubble by number of micro-batches."""
    plan = measured.plan
    columns = ("microbatches", "step", "bubble", "ideal", "formula")
    rows: list[list[str]] = []
    for count, name in plan.counted().items():
        pipelined = measured.pipelined[name]
        formula = FORMULAS["1f1b"].bubble_of(plan.workers, count, UNIT_TIMES)
        rows.append(
            [
                str(count),
                f"{measured.ways[name].step_ms:.2f}",
                f"{measured.bubble(name).scaled(100):.0f}",
                f"{100 * pipelined.ideal.bubble:.0f}",
                f"{100 * formula:.0f}",
            ]
        )
    values: dict[str, Any] = {"workers": plan.workers}
    return [
        *page.section("microbatches", **values),
        page.figure("microbatches", **values),
        page.table("microbatches", page.header("microbatches", *columns), rows, **values),
    ]


def cuts(measured: Lab4Measurements, page: Page) -> list[Block]:
    """Two stages, divided at different layers."""
    rows: list[list[str]] = []
    for layer, name in measured.plan.cuts().items():
        way, stage_ms = measured.ways[name], measured.pipelined[name].stage_ms
        rows.append(
            [
                layer,
                *(f"{each:.2f}" for each in stage_ms),
                f"{way.step_ms:.2f}",
                f"{way.sent_bytes / 2**10:,.0f}",
                _saved_kib(way),
            ]
        )
    header = page.header("cuts", "layer", "first", "second", "step", "sent", "memory")
    return [*page.section("cuts"), page.figure("cuts"), page.table("cuts", header, rows)]


def result_table(measured: Lab4Measurements, page: Page) -> Table:
    """One machine, then every division: for the terminal."""
    rows = [
        [
            label_of(name, page.words),
            str(len(measured.ways[name].ranks)),
            f"{_test_accuracy(name, measured):.1f}",
            f"{measured.ways[name].step_ms:.2f}",
            *_shares(measured.ways[name]),
            f"{max(held.total for held in measured.ways[name].held) / 2**10:.0f}",
            scientific(measured.ways[name].first_step) if name != "single" else "–",
        ]
        for name in measured.plan.ways
    ]
    columns = ("way", "workers", "accuracy", "step", "own", "move", "wait", "memory", "difference")
    return Table("", page.header("results", *columns), rows)


def _shares(way: Way) -> list[str]:
    """Own work, moving and waiting in percent: means over the workers."""
    parts = zip(*((rank.own, rank.move, rank.wait) for rank in way.ranks), strict=True)
    return [f"{100 * sum(part) / len(part):.0f}" for part in parts]


def _saved_kib(way: Way) -> str:
    """What each worker saves, in KiB."""
    return " / ".join(f"{held.total / 2**10:.0f}" for held in way.held)
