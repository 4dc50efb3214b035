"""The sections of the report that are particular to the lab."""

from shoal.comm import algorithms
from shoal.config.conditions import Link
from shoal.report.document import Block, Bullets, Code, Formula, Paragraph, Table
from shoal.report.findings import accuracy_over, over_seeds
from shoal_labs.lab2 import averaging
from shoal_labs.lab2 import plan as lab
from shoal_labs.lab2.branches import ALL, calls_of
from shoal_labs.lab2.figures import MOST_LOSS, PACES, SMOOTHED_OVER, branch_label
from shoal_labs.lab2.measure import BYTES_PER_ELEMENT, LAST_STEPS, LEARNING, Lab2Measurements, as_labelled
from shoal_labs.numbers import scientific
from shoal_labs.page.page import Page, folded, source

SHOWN = ("all_gather", "gather_scatter", "reduce_scatter_all_gather")
"""Branches whose code the report prints, besides the ring."""
HELPERS = (averaging.room_for_all, averaging.sum_into, averaging.divisible)


def principle(page: Page) -> list[Block]:
    """What workers must agree on, and by what ways."""
    return [
        Paragraph(page("principle.problem")),
        Formula(page("principle.formula")),
        Paragraph(page("principle.weights")),
        *page.parts("principle", ("collectives", "aggregates", "times", "rules")),
    ]


def code(page: Page) -> list[Block]:
    """What ran, from the source itself."""
    return [
        *(Code(source(averaging.BRANCHES[name]), branch_label(name, page)) for name in SHOWN),
        Code("\n".join(map(source, HELPERS)), page("code.helpers")),
        Code(source(algorithms.ring), page("code.ring")),
    ]


def set_up(measured: Lab2Measurements, page: Page) -> list[Block]:
    """Data, model, runs, conditions."""
    plan, size, link = measured.plan, measured.plan.size, Link.from_text(lab.LINK)
    model = {
        "data": plan.data.name,
        "model": plan.model.name,
        "parameters": measured.parameters,
        "kib": measured.parameters * BYTES_PER_ELEMENT / 1024,
        "tensors": measured.tensors,
    }
    optimizers = {"rate": lab.RATE, "momentum": lab.MOMENTUM, "adam_rate": lab.ADAM_RATE}
    rotation = {"branches": len(ALL), "turn": size.branch_steps, "rounds": size.rounds["even"]}
    conditions = {
        "slow": lab.SLOW,
        "slowdown": lab.SLOWDOWN,
        "share": 100 * lab.SHARE,
        "mbit": link.bits_per_s / 1e6,
        "latency": 1e3 * link.latency_s,
    }
    dense = {"model": plan.dense_model.name}
    parts = {
        "parts": plan.uneven_parts,
        "slow": lab.SLOW,
        "most": plan.uneven_parts - plan.workers + 1,
    }
    sentences = [
        page("setup.data", **model),
        page("setup.training", batch=lab.BATCH_SIZE, **optimizers),
        page("setup.rotation", **rotation),
        page("setup.conditions", **conditions),
        page("setup.pace", steps=size.pace_steps),
        page("setup.equal", **dense, steps=size.equal_steps),
        *([page("setup.equal_on_gpu", **parts)] if plan.device == "cuda" else []),
        page("setup.contests", rounds=size.contest_rounds),
        page(
            "setup.learn",
            **dense,
            steps=size.learn_steps,
            seeds=plan.seeds,
            shared_rate=lab.RATE / plan.workers,
        ),
        page("setup.faults", **dense, workers=lab.FAULT_WORKERS, slow=lab.SLOW, steps=size.fault_steps),
    ]
    return [Bullets(sentences)]


def results(measured: Lab2Measurements, page: Page) -> list[Block]:
    """All results, in the order of the questions."""
    return [
        *collectives(measured, page),
        *aggregation(measured, page),
        *bottleneck(measured, page),
        *faults(measured, page),
    ]


def collectives(measured: Lab2Measurements, page: Page) -> list[Block]:
    """What each way of averaging costs, and the proof that it calls what its label says."""
    return [
        *page.section("collectives"),
        page.figure("exchange", "collectives"),
        time_table(measured, page),
        condition_table(measured, page),
        Paragraph(page("record.intro")),
        record_table(measured, page),
    ]


def time_table(measured: Lab2Measurements, page: Page) -> Table:
    """The exchange of a step by every branch, without a bottleneck."""
    rows = [
        [
            branch_label(name, page),
            *(f"{part:.2f}" for part in (times.wait_ms, times.move_ms, times.exchange_ms)),
        ]
        for name, times in measured.branches["even"].items()
    ]
    return page.table("split", page.header("split", "branch", "wait", "move", "both"), rows)


def condition_table(measured: Lab2Measurements, page: Page) -> Table:
    """The exchange of a step by every branch, under every condition."""
    conditions = [page("collectives.ms", condition=page(f"condition.{name}")) for name in lab.CONDITIONS]
    rows = [
        [
            branch_label(name, page),
            *(f"{branches[name].exchange_ms:.2f}" for branches in measured.branches.values()),
        ]
        for name in ALL
    ]
    return page.table("collectives", [page("split.branch_column"), *conditions], rows)


def record_table(measured: Lab2Measurements, page: Page) -> Table:
    """What every branch called in a step, from the record, beside what its label says."""
    gradients = BYTES_PER_ELEMENT * measured.parameters
    rows = [
        [
            branch_label(name, page),
            ", ".join(sorted(calls_of(name))),
            ", ".join(sorted(record.operations)),
            str(record.calls),
            f"{record.sent / gradients:.2f}",
            page("answer.yes" if as_labelled(name, record) else "answer.no"),
        ]
        for name, record in measured.recorded.items()
    ]
    header = page.header("record", "branch", "label", "called", "calls", "sent", "right")
    return page.table("record", header, rows, right=frozenset({3, 4}))


def aggregation(measured: Lab2Measurements, page: Page) -> list[Block]:
    """Sum and mean, gradients and parameters, stages."""
    compared = ("exact", "sum", "parameters", "adam-parameters", "stages")
    equal = [[_equal(name, page), scientific(measured.differences[name])] for name in compared]
    learnt = [
        [
            page(f"learn.{name.replace('-', '_')}"),
            f"{over_seeds(measured.learnt[name].losses):.4f}",
            _accuracy(measured.learnt[name].accuracies, measured),
        ]
        for name in LEARNING
        if not name.startswith("uneven")
    ]
    header = page.header("aggregation", "way", "loss", "accuracy")
    return [
        *page.section("aggregation"),
        page.figure("loss", "aggregation", window=SMOOTHED_OVER),
        page.table("aggregation", header, learnt, last=LAST_STEPS),
        Paragraph(page("equal.intro")),
        page.table("equal", page.header("equal", "what", "difference"), equal),
        *page.section("stages"),
        page.figure("stages"),
    ]


def bottleneck(measured: Lab2Measurements, page: Page) -> list[Block]:
    """Speed and correctness under every condition."""
    paces = {name: measured.paces[name] for name in PACES}
    even = paces["even"].samples_per_s.value
    speeds = [
        [
            page(f"condition.{name}"),
            f"{pace.samples_per_s:,.0f}",
            f"{pace.samples_per_s.value / even:.2f}",
            f"{pace.wait_ms:.2f}",
            f"{pace.move_ms:.2f}",
        ]
        for name, pace in paces.items()
    ]
    uneven = [
        [
            _equal(way, page),
            scientific(measured.differences[way]),
            _accuracy(measured.learnt[way].accuracies, measured) if way in measured.learnt else "–",
        ]
        for way in ("uneven-exact", "uneven-weighted_mean", "uneven-mean")
    ]
    header = page.header("bottleneck", "condition", "speed", "ratio", "wait", "move")
    return [
        *page.section("bottleneck"),
        page.figure("pace", "bottleneck"),
        page.table("bottleneck", header, speeds),
        *page.section("uneven", share=100 * lab.SHARE),
        page.table("uneven", page.header("uneven", "what", "difference", "accuracy"), uneven),
    ]


def faults(measured: Lab2Measurements, page: Page) -> list[Block]:
    """One faulty worker against every rule."""

    def cell(fault: str, rule: str) -> str:
        accuracies = measured.faulty[fault, rule].accuracies
        return (
            f"{accuracy_over(accuracies, measured.test_samples).scaled(100):.1f}"
            if accuracies
            else page("faults.stopped")
        )

    rows = [[page(f"rule.{rule}"), *(cell(fault, rule) for fault in lab.FAULTS)] for rule in lab.RULES]
    header = [page("faults.rule_column"), *(page(f"fault.{fault}") for fault in lab.FAULTS)]
    said = sorted({one.stopped for one in measured.faulty.values() if one.stopped})
    return [
        *page.section("faults", workers=lab.FAULT_WORKERS),
        page.figure("faults", most=MOST_LOSS, window=SMOOTHED_OVER),
        page.table("faults", header, rows),
        *([Code(folded("\n".join(said)), page("faults.said"), "text")] if said else []),
    ]


def _equal(name: str, page: Page) -> str:
    return page(f"equal.{name.replace('-', '_')}")


def _accuracy(accuracies: tuple[float, ...], measured: Lab2Measurements) -> str:
    return f"{accuracy_over(accuracies, measured.test_samples).scaled(100):.2f}"
