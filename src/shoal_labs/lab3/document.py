"""The sections of the report that are particular to the lab."""

from typing import Any

from shoal.data.division import order, partition
from shoal.report.document import Block, Bullets, Code, Formula, Paragraph, Table
from shoal.report.findings import Measured
from shoal.report.paired import by_rounds, first_lower
from shoal.words import Phrase
from shoal_labs.lab3 import own_loop, wrong_samplers
from shoal_labs.lab3.claims import ROUNDING
from shoal_labs.lab3.figures import curve_names, label_of
from shoal_labs.lab3.measure import Divided, Lab3Measurements, Learnt
from shoal_labs.lab3.own_loop import SELDOM, WRONG
from shoal_labs.lab3.pace import Pace
from shoal_labs.lab3.plan import (
    ALIKE,
    ALL_CORES,
    BATCH_SIZE,
    DIVISIONS,
    EQUAL_RATE,
    ONE_CORE,
    RATE,
    SLOW,
    SLOW_RANDOM,
    SLOWDOWN,
    UNLIKE,
)
from shoal_labs.numbers import scientific
from shoal_labs.page.page import Page, source

SHOWN = {
    "random": partition.random_partition,
    "sampling": order.sample_draws,
    "loop": own_loop.train_epoch,
    "seldom": own_loop.average_weights,
    "range": wrong_samplers.OneWorkersRange.__iter__,
    "rank_seed": wrong_samplers.SeedPerRank.__iter__,
}
"""The code that the report prints."""


def principle(page: Page) -> list[Block]:
    """What data parallelism is, and what a division of the data can and cannot change."""
    explained = [f"explained.{name}" for name in DIVISIONS]
    return [
        Paragraph(page("principle.problem")),
        Formula(page("principle.formula")),
        Paragraph(page("principle.equal")),
        *page.parts("principle", ["divisions"]),
        Bullets([page(key) for key in explained if key in page.words.sentences]),
        *page.parts("principle", ("unlike", "speed", "errors")),
        Formula(page("principle.coverage_formula")),
    ]


def code(page: Page) -> list[Block]:
    """What ran, from the source itself."""
    return [Code(source(what), page(f"code.{name}")) for name, what in SHOWN.items()]


def set_up(measured: Lab3Measurements, page: Page) -> list[Block]:
    """Data, model, runs."""
    plan, size = measured.plan, measured.plan.size
    rounds = tuple(
        Phrase("each.workers", {"workers": workers, "value": plan.rounds_of(workers)})
        for workers in plan.workers
    )
    sentences = [
        page("setup.data", data=plan.data.name, **measured.num_samples),
        page("setup.model", model=plan.model.name, parameters=measured.parameters),
        page("setup.training", batch=BATCH_SIZE, rate=RATE, epochs=page.words.counted("epoch", size.epochs)),
        page("setup.seeds", seeds=plan.seeds, few=plan.seeds[: size.few_seeds]),
        page("setup.timed", cores=plan.cores, steps=size.timed_steps, rounds=rounds),
        page("setup.slow", slow=SLOW, slowdown=SLOWDOWN),
        page("setup.equal", steps=size.equal_steps, rate=EQUAL_RATE, bound=scientific(ROUNDING)),
        *([page("setup.equal_on_gpu")] if plan.device == "cuda" else []),
        page("setup.own"),
    ]
    return [Bullets(sentences)]


def results(measured: Lab3Measurements, page: Page) -> list[Block]:
    """All results, in the order of the questions."""
    return [
        *owners(measured, page),
        *training(measured, page),
        *equality(measured, page),
        *speed(measured, page),
        *unlike(measured, page),
        *wrong(measured, page),
    ]


def owners(measured: Lab3Measurements, page: Page) -> list[Block]:
    """Which worker has which samples, and what is seen of the data set."""
    plan = measured.plan
    values: dict[str, Any] = {"workers": plan.most, "epochs": page.words.counted("epoch", plan.size.epochs)}
    rows = [_owner_row(name, measured.divided[name, plan.most], page) for name in DIVISIONS]
    columns = ("division", "parts", "skew", "coverage", "overlap", "after")
    return [
        *page.section("owners", **values),
        page.figure("owners", **values),
        page.table("owners", page.header("owners", *columns, **values), rows, **values),
    ]


def _owner_row(name: str, divided: Divided, page: Page) -> list[str]:
    first = divided.seen[0]
    parts = first.first.per_worker
    return [
        label_of(name, page),
        f"{min(parts):,} – {max(parts):,}" if min(parts) < max(parts) else f"{max(parts):,}",
        f"{first.skew:.2f}",
        f"{100 * first.first.coverage:.1f}",
        f"{100 * first.first.overlap:.1f}",
        f"{100 * first.coverage[-1]:.1f}",
    ]


def training(measured: Lab3Measurements, page: Page) -> list[Block]:
    """Loss and accuracy of every division against one machine."""
    numbers = measured.plan.workers

    def row(label: str, learnt: list[Learnt]) -> list[str]:
        return [
            label,
            *(cell for each in learnt for cell in (f"{each.final_loss:.3f}", _percent(each.test_accuracy))),
        ]

    rows = [row(page("way.single"), [measured.single for _ in numbers])]
    rows += [
        row(label_of(name, page), [measured.divided[name, workers].learnt for workers in numbers])
        for name in (*ALIKE, *UNLIKE)
    ]
    header = page.header("training", "division")
    for workers in numbers:
        header += page.header("training", "loss", "accuracy", workers=workers)
    return [
        *page.section("training"),
        *(page.figure(name, "training", workers=workers) for workers, name in curve_names(numbers).items()),
        page.table("training", header, rows),
    ]


def equality(measured: Lab3Measurements, page: Page) -> list[Block]:
    """What is the same as one machine, weight by weight."""
    steps, most = measured.plan.size.equal_steps, measured.plan.most
    rows = [
        [page("equality.global", workers=workers), scientific(difference)]
        for workers, difference in measured.from_single.items()
    ]
    rows += [
        [page("equality.same_order", division=label_of(name, page), workers=most), scientific(difference)]
        for name, difference in measured.from_same_order.items()
        if name != "global"
    ]
    return [
        *page.section("equality", steps=steps),
        page.table("equality", page.header("equality", "what", "difference"), rows, steps=steps),
    ]


def speed(measured: Lab3Measurements, page: Page) -> list[Block]:
    """How fast, how many times as fast, and where the time goes."""
    header = page.header("speed", "division", "speed", "all_cores", "one_core", "own", "wait", "move")
    # On a busy machine this happens, and a speed-up of eight on two cores needs an explanation.
    slow = first_lower(by_rounds(measured.one_core.rounds_ms, measured.all_cores.rounds_ms)) == "holds"
    return [
        *page.section("speed", cores=measured.plan.cores),
        *([Paragraph(page("speed.on_gpu", gpus=measured.plan.gpus))] if measured.plan.gpus else []),
        page.figure("speed"),
        *(
            page.table("speed", header, _pace_rows(measured, workers, page), workers=workers)
            for workers in measured.plan.workers
        ),
        *([Paragraph(page("speed.slow_all_cores"))] if slow else []),
    ]


def _pace_rows(measured: Lab3Measurements, workers: int, page: Page) -> list[list[str]]:
    timed = {name: measured.divided[name, workers].pace for name in DIVISIONS}
    by_speed = timed.pop("speed")
    paces = {
        page("way.all_cores", cores=measured.plan.cores): measured.paces[workers][ALL_CORES],
        page("way.one_core"): measured.paces[workers][ONE_CORE],
        **{label_of(name, page): pace for name, pace in timed.items()},
        page("way.slow_random"): measured.paces[workers][SLOW_RANDOM],
        page("way.slow_speed"): by_speed,
    }
    return [
        [
            label,
            f"{pace.samples_per_s:,.0f}",
            f"{pace.against_all_cores:.2f}",
            f"{pace.against_one_core:.2f}",
            *(f"{100 * part:.0f}" for part in (pace.own, pace.wait, pace.move)),
        ]
        for label, pace in paces.items()
        if pace
    ]


def unlike(measured: Lab3Measurements, page: Page) -> list[Block]:
    """Different data for different workers: synchronised in every step, and once an epoch."""
    most = measured.plan.most
    every_step = {name: measured.divided[name, most].learnt for name in ("random", "label")}
    every_epoch = {way.removeprefix("seldom-"): measured.own[way, most].learnt for way in SELDOM}
    rows = [
        [page(f"unlike.{how}"), label_of(name, page), _percent(learnt.test_accuracy)]
        for how, ways in (("step", every_step), ("epoch", every_epoch))
        for name, learnt in ways.items()
    ]
    header = page.header("unlike", "agree", "division", "accuracy")
    return [
        *page.section("unlike"),
        page.table("unlike", header, rows, right=frozenset({2}), workers=most),
    ]


def wrong(measured: Lab3Measurements, page: Page) -> list[Block]:
    """The two common errors: what they see, what they do, and what would have shown them."""
    rows = [
        [
            label_of(way, page),
            str(workers),
            f"{own.first_coverage.scaled(100):.1f}",
            f"{100 * own.predicted:.1f}",
            f"{100 * own.coverage[:, -1].mean():.1f}",
            f"{own.learnt.final_loss:.3f}",
            _percent(own.learnt.test_accuracy),
        ]
        for (way, workers), own in measured.own.items()
        if way in ("right", *WRONG)
    ]
    refused = [
        page("wrong.said", sampler=label_of(way, page), said=said or page("wrong.nothing"))
        for way, said in measured.refusals.items()
    ]
    columns = ("sampler", "workers", "coverage", "formula", "after", "loss", "accuracy")
    return [
        *page.section("wrong"),
        page.figure("samplers", "wrong"),
        page.table(
            "wrong",
            page.header("wrong", *columns),
            rows,
            epochs=page.words.counted("epoch", measured.plan.size.epochs),
        ),
        Paragraph(page("wrong.refused")),
        Bullets(refused),
    ]


def result_table(measured: Lab3Measurements, page: Page) -> Table:
    """One machine, then every division with every number of workers: for the terminal."""
    rows = [[page("way.single"), "1", *_result_cells(measured.single.test_accuracy, 1.0, measured.one_core)]]
    for workers in measured.plan.workers:
        for name in DIVISIONS:
            divided = measured.divided[name, workers]
            cells = _result_cells(divided.learnt.test_accuracy, divided.coverage.value, divided.pace)
            rows.append([label_of(name, page), str(workers), *cells])
    columns = ("division", "workers", "accuracy", "coverage", "speed", "all_cores", "one_core", "comm")
    return Table("", page.header("results", *columns), rows)


def _result_cells(accuracy: Measured, coverage: float, pace: Pace | None) -> list[str]:
    cells = [f"{accuracy.scaled(100):.1f}", f"{100 * coverage:.1f}"]
    if pace is None:
        return [*cells, *["–"] * 4]
    return [
        *cells,
        f"{pace.samples_per_s:,.0f}",
        f"{pace.against_all_cores:.2f}",
        f"{pace.against_one_core:.2f}",
        f"{100 * pace.communication:.0f}",
    ]


def _percent(accuracy: Measured) -> str:
    return f"{accuracy.scaled(100):.2f}"
