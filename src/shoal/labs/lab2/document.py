"""The report of the lab: principle, code, set-up, results, analysis, from measurements and words."""

from collections.abc import Mapping, Sequence

from shoal.comm import algorithms
from shoal.config.conditions import Link
from shoal.labs.analysis import analysis
from shoal.labs.lab2 import averaging
from shoal.labs.lab2.branches import ALL, MESSAGES, calls_of
from shoal.labs.lab2.figures import MOST_LOSS, PACES, SMOOTHED_OVER, branch_label
from shoal.labs.lab2.findings import GROUPS
from shoal.labs.lab2.measure import LAST_STEPS, LEARNING, Measurements, as_labelled
from shoal.labs.lab2.plan import (
    ADAM_RATE,
    BATCH_SIZE,
    CONDITIONS,
    FAULT_WORKERS,
    FAULTS,
    LINK,
    MOMENTUM,
    RATE,
    RULES,
    SHARE,
    SLOW,
    SLOWDOWN,
)
from shoal.labs.numbers import listed, scientific
from shoal.labs.pictures import Pictures
from shoal.labs.sections import folded, header_of, machine_table, number_table, opening, source
from shoal.labs.words import Words
from shoal.report.document import Block, Bullets, Code, Document, Formula, Heading, Paragraph, Table
from shoal.report.findings import Finding, over_seeds

SHOWN = ("all_gather", "gather_scatter", "reduce_scatter_all_gather")
"""Branches whose code the report prints, besides the ring."""
HELPERS = (averaging.room_for_all, averaging.sum_into, averaging.divisible)


def document(
    measured: Measurements,
    command: str,
    machine: Mapping[str, str],
    findings: Sequence[Finding],
    pictures: Pictures,
    words: Words,
) -> Document:
    """The whole report."""
    plan = measured.plan
    blocks: list[Block] = [
        *opening(plan.quick, command, words),
        *principle(words),
        *code(words),
        *set_up(measured, machine, words),
        Heading(words("results.heading")),
        *collectives(measured, pictures, words),
        *aggregation(measured, pictures, words),
        *bottleneck(measured, pictures, words),
        *faults(measured, pictures, words),
        *pictures.note(words),
        *analysis(GROUPS, findings, words),
    ]
    return Document(words("title", workers=plan.workers), words.lang, blocks)


def principle(words: Words) -> list[Block]:
    """What workers must agree on, and by what ways."""
    blocks: list[Block] = [
        Heading(words("principle.heading")),
        Paragraph(words("principle.problem")),
        Formula(words("principle.formula")),
        Paragraph(words("principle.weights")),
    ]
    for part in ("collectives", "aggregates", "times", "rules"):
        blocks += [Heading(words(f"principle.{part}_heading"), 3), Paragraph(words(f"principle.{part}"))]
    return blocks


def code(words: Words) -> list[Block]:
    """What ran, from the source itself."""
    return [
        Heading(words("code.heading")),
        Paragraph(words("code.intro")),
        *(
            Code(source(averaging.BRANCHES[name]), words("code.branch", name=branch_label(name, words)))
            for name in SHOWN
        ),
        Code("\n".join(map(source, HELPERS)), words("code.helpers")),
        Code(source(algorithms.ring), words("code.ring")),
    ]


def set_up(measured: Measurements, machine: Mapping[str, str], words: Words) -> list[Block]:
    """Data, model, runs, conditions, machine."""
    plan, size = measured.plan, measured.plan.size
    link = Link.from_text(LINK)
    conditions = {
        "slow": SLOW,
        "slowdown": SLOWDOWN,
        "share": 100 * SHARE,
        "mbit": link.bits_per_s / 1e6,
        "latency": 1e3 * link.latency_s,
    }
    return [
        Heading(words("setup.heading")),
        Bullets(
            [
                words(
                    "setup.data",
                    data=plan.data.name,
                    model=plan.model.name,
                    parameters=measured.parameters,
                    kib=measured.parameters * 4 / 1024,
                    tensors=measured.tensors,
                ),
                words("setup.training", batch=BATCH_SIZE, rate=RATE, momentum=MOMENTUM, adam_rate=ADAM_RATE),
                words(
                    "setup.rotation", branches=len(ALL), turn=size.branch_steps, rounds=size.rounds["even"]
                ),
                words("setup.conditions", **conditions),
                words("setup.pace", steps=size.pace_steps),
                words("setup.equal", steps=size.equal_steps),
                words("setup.learn", steps=size.learn_steps, seeds=listed(plan.seeds)),
                words("setup.faults", workers=FAULT_WORKERS, slow=SLOW, steps=size.fault_steps),
            ]
        ),
        machine_table(machine, words),
    ]


def collectives(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """What each way of averaging costs, and the proof that it is what it says."""
    return [
        Heading(words("collectives.heading"), 3),
        Paragraph(words("collectives.intro")),
        pictures.figure("exchange", words("collectives.caption"), words("collectives.alt"), wide=True),
        number_table(words("collectives.split_table"), time_header(words), time_rows(measured, words)),
        condition_table(measured, words),
        Paragraph(words("record.intro")),
        record_table(measured, words),
    ]


def time_header(words: Words) -> list[str]:
    """Columns of the table of times, with units."""
    return header_of("collectives", ("branch", "wait", "move", "both"), words)


def time_rows(measured: Measurements, words: Words) -> list[list[str]]:
    """The exchange of a step by every branch, without a bottleneck."""
    return [
        [
            branch_label(name, words),
            *(f"{part:.2f}" for part in (times.wait_ms, times.move_ms, times.exchange_ms)),
        ]
        for name, times in measured.branches["even"].items()
    ]


def condition_table(measured: Measurements, words: Words) -> Table:
    """The exchange of a step by every branch, under every condition."""
    header = [
        words("collectives.branch_column"),
        *(words("collectives.ms", condition=words(f"condition.{condition}")) for condition in CONDITIONS),
    ]
    rows = [
        [
            branch_label(name, words),
            *(f"{measured.branches[condition][name].exchange_ms:.2f}" for condition in CONDITIONS),
        ]
        for name in ALL
    ]
    return number_table(words("collectives.table"), header, rows)


def record_table(measured: Measurements, words: Words) -> Table:
    """What every branch called in a step, from the record, beside what its label says."""
    rows: list[list[str]] = []
    for name, record in measured.recorded.items():
        sent = f"{record.sent / 4 / measured.parameters:.2f}" if name in MESSAGES else "–"
        right = words("answer.yes" if as_labelled(name, record) else "answer.no")
        called = ", ".join(sorted(record.operations))
        rows.append(
            [
                branch_label(name, words),
                ", ".join(sorted(calls_of(name))),
                called,
                str(record.calls),
                sent,
                right,
            ]
        )
    header = header_of("record", ("branch", "label", "called", "calls", "sent", "right"), words)
    return Table(words("record.table"), header, rows, frozenset({3, 4}))


def aggregation(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """Sum and mean, gradients and parameters, stages."""
    compared = ("exact", "sum", "parameters", "adam-parameters", "stages")
    rows = [
        [words(f"equal.{name.replace('-', '_')}"), scientific(measured.differences[name])]
        for name in compared
    ]
    learnt = [
        [
            words(f"learn.{name.replace('-', '_')}"),
            f"{over_seeds(measured.learnt[name].losses):.4f}",
            f"{over_seeds(measured.learnt[name].accuracies).scaled(100):.2f}",
        ]
        for name in LEARNING
        if not name.startswith("uneven")
    ]
    return [
        Heading(words("aggregation.heading"), 3),
        Paragraph(words("aggregation.intro")),
        pictures.figure("loss", words("aggregation.caption", window=SMOOTHED_OVER), words("aggregation.alt")),
        number_table(
            words("aggregation.table", last=LAST_STEPS),
            header_of("aggregation", ("way", "loss", "accuracy"), words),
            learnt,
        ),
        Paragraph(words("equal.intro")),
        number_table(words("equal.table"), header_of("equal", ("what", "difference"), words), rows),
        Heading(words("stages.heading"), 3),
        Paragraph(words("stages.intro")),
        pictures.figure("stages", words("stages.caption"), words("stages.alt")),
    ]


def bottleneck(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """Speed and truth under every condition."""
    rows = [
        [
            words(f"condition.{name}"),
            f"{measured.paces[name].samples_per_s:,.0f}",
            f"{measured.paces[name].samples_per_s.value / measured.paces['even'].samples_per_s.value:.2f}",
            f"{measured.paces[name].wait_ms:.2f}",
            f"{measured.paces[name].move_ms:.2f}",
        ]
        for name in PACES
    ]
    ways = ("uneven-exact", "uneven-weighted_mean", "uneven-mean")
    uneven = [
        [
            words(f"equal.{way.replace('-', '_')}"),
            scientific(measured.differences[way]),
            f"{over_seeds(measured.learnt[way].accuracies).scaled(100):.2f}"
            if way in measured.learnt
            else "–",
        ]
        for way in ways
    ]
    return [
        Heading(words("bottleneck.heading"), 3),
        Paragraph(words("bottleneck.intro")),
        pictures.figure("pace", words("bottleneck.caption"), words("bottleneck.alt")),
        number_table(
            words("bottleneck.table"),
            header_of("bottleneck", ("condition", "speed", "ratio", "wait", "move"), words),
            rows,
        ),
        Heading(words("uneven.heading"), 3),
        Paragraph(words("uneven.intro", share=100 * SHARE)),
        number_table(
            words("uneven.table"), header_of("uneven", ("what", "difference", "accuracy"), words), uneven
        ),
    ]


def faults(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """One bad worker against every rule."""

    def cell(fault: str, rule: str) -> str:
        accuracies = measured.faulty[fault, rule].accuracies
        return f"{over_seeds(accuracies).scaled(100):.1f}" if accuracies else words("faults.stopped")

    rows = [[words(f"rule.{rule}"), *(cell(fault, rule) for fault in FAULTS)] for rule in RULES]
    header = [words("faults.rule_column"), *(words(f"fault.{fault}") for fault in FAULTS)]
    said = sorted({one.stopped for one in measured.faulty.values() if one.stopped})
    return [
        Heading(words("faults.heading"), 3),
        Paragraph(words("faults.intro", workers=FAULT_WORKERS)),
        pictures.figure(
            "faults",
            words("faults.caption", most=MOST_LOSS, window=SMOOTHED_OVER),
            words("faults.alt"),
            wide=True,
        ),
        number_table(words("faults.table"), header, rows),
        *([Code(folded("\n".join(said)), words("faults.said"), "text")] if said else []),
    ]
