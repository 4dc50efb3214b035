"""What fills the lab's page: values, tables, code; and the tables of single runs, for programs."""

from collections.abc import Sequence

from shoal.comm import algorithms
from shoal.config.conditions import Link
from shoal.report.findings import Measured, accuracy_over, over_seeds
from shoal.report.plain_tables import Records
from shoal.words import Phrase
from shoal_labs.lab2 import averaging
from shoal_labs.lab2 import plan as lab
from shoal_labs.lab2.averaging import ALL, calls_of
from shoal_labs.lab2.figures import MOST_LOSS, PACES, SMOOTHED_OVER
from shoal_labs.lab2.measure import BYTES_PER_ELEMENT, LAST_STEPS, Lab2Measurements
from shoal_labs.page.page import source
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content

SHOWN = ("all_gather", "gather_scatter", "reduce_scatter_all_gather")
"""Branches whose code the page prints, besides the ring."""
HELPERS = (averaging.room_for_all, averaging.sum_into, averaging.divisible)


def content(measured: Lab2Measurements) -> Content:
    """Everything but figures and findings."""
    plan, size, link = measured.plan, measured.plan.size, Link.from_text(lab.LINK)
    stopped = sorted({trained.stopped for trained in measured.faulty.values() if trained.stopped})
    parts = {"parts": plan.uneven_parts, "most_parts": plan.uneven_parts - plan.workers + 1}
    return Content(
        values={
            "data": plan.data.name,
            "model": plan.model.name,
            "dense": plan.dense_model.name,
            "parameters": measured.parameters,
            "kib": measured.parameters * BYTES_PER_ELEMENT / 1024,
            "tensors": measured.tensors,
            "batch": lab.BATCH_SIZE,
            "rate": lab.RATE,
            "momentum": lab.MOMENTUM,
            "adam_rate": lab.ADAM_RATE,
            "shared_rate": lab.RATE / plan.workers,
            "branches": len(ALL),
            "turn": size.branch_steps,
            "rounds": size.rounds["even"],
            "contest_rounds": size.contest_rounds,
            "slow": lab.SLOW,
            "slowdown": lab.SLOWDOWN,
            "share": 100 * lab.SHARE,
            "mbit": link.bits_per_s / 1e6,
            "latency": 1e3 * link.latency_s,
            "pace_steps": size.pace_steps,
            "equal_steps": size.equal_steps,
            "learn_steps": size.learn_steps,
            "fault_steps": size.fault_steps,
            "fault_workers": lab.FAULT_WORKERS,
            "seeds": plan.learn_seeds("sgd-sum"),
            "window": SMOOTHED_OVER,
            "last": LAST_STEPS,
            "most": MOST_LOSS,
        },
        each={
            "on_gpu": [parts] * (plan.device == "cuda"),
            "conditions": [{"condition": Phrase(f"condition.{name}")} for name in lab.CONDITIONS],
            "faults": [{"fault": Phrase(f"fault.{name}")} for name in lab.FAULTS],
            "any_stopped": [{}] * bool(stopped),
            "stopped": [{"error": error} for error in stopped],
        },
        tables={
            "split": even_times(measured),
            "collectives": times_under_conditions(measured),
            "record": recorded_calls(measured),
            "aggregation": aggregations(measured),
            "equal": equal_weights(measured),
            "bottleneck": speeds(measured),
            "uneven": uneven_batches(measured),
            "tolerance": tolerance(measured),
        },
        code={
            **{name: source(averaging.BRANCHES[name]) for name in SHOWN},
            "helpers": "\n".join(map(source, HELPERS)),
            "ring": source(algorithms.ring),
        },
    )


def even_times(measured: Lab2Measurements) -> PageTable:
    """The exchange of a step by every branch, without a bottleneck."""
    columns = {"branch": "", "waiting (ms)": ".2f", "moving (ms)": ".2f", "exchange (ms)": ".2f"}
    return PageTable(
        columns,
        [
            [Phrase(f"branch.{name}"), times.wait_ms, times.move_ms, times.exchange_ms]
            for name, times in measured.branches["even"].items()
        ],
    )


def times_under_conditions(measured: Lab2Measurements) -> PageTable:
    """The exchange of a step by every branch, under every condition."""
    return PageTable(
        {"branch": "", **{f"{condition} (ms)": ".2f" for condition in lab.CONDITIONS}},
        [
            [
                Phrase(f"branch.{name}"),
                *(measured.branches[condition][name].exchange_ms for condition in lab.CONDITIONS),
            ]
            for name in ALL
        ],
    )


def recorded_calls(measured: Lab2Measurements) -> PageTable:
    """What every branch called in a step, from the record, beside what its label says."""
    columns = {
        "branch": "",
        "label": "",
        "called": "",
        "calls per step": "d",
        "sent (buffers)": ".2f",
        "as labelled": "",
    }
    return PageTable(
        columns,
        [
            [
                Phrase(f"branch.{name}"),
                sorted(calls_of(name)),
                sorted(record.operations),
                record.calls,
                record.sent / BYTES_PER_ELEMENT / measured.parameters,
                record.as_labelled,
            ]
            for name, record in measured.recorded.items()
        ],
    )


def aggregations(measured: Lab2Measurements) -> PageTable:
    """The end of training with sum and mean."""
    return PageTable(
        {"aggregation": "", "final loss (nat)": ".4f", "test accuracy (%)": ".2f"},
        [
            [
                Phrase(f"learn.{name}"),
                over_seeds(measured.learnt[name].losses),
                _percent(measured, measured.learnt[name].accuracies),
            ]
            for name in lab.LEARNING
            if not name.startswith("uneven")
        ],
    )


def equal_weights(measured: Lab2Measurements) -> PageTable:
    """What is the same, weight by weight, and what is not."""
    return PageTable(
        {"compared": "", "relative difference": "sci"},
        [
            [Phrase(f"equal.{name}"), measured.differences[name]]
            for name in ("exact", "sum", "parameters", "adam-parameters", "stages")
        ],
    )


def speeds(measured: Lab2Measurements) -> PageTable:
    """Speed under every condition."""
    columns = {
        "condition": "",
        "samples per second (1/s)": ",.0f",
        "relative speed": ".2f",
        "waiting (ms)": ".2f",
        "moving (ms)": ".2f",
    }
    paces = {name: measured.paces[name] for name in PACES}
    even = paces["even"].samples_per_s.value
    return PageTable(
        columns,
        [
            [
                Phrase(f"condition.{name}"),
                pace.samples_per_s,
                pace.samples_per_s.value / even,
                pace.wait_ms,
                pace.move_ms,
            ]
            for name, pace in paces.items()
        ],
    )


def uneven_batches(measured: Lab2Measurements) -> PageTable:
    """Three ways to combine the gradients of uneven batches; not all of them were trained for longer."""
    return PageTable(
        {"aggregation": "", "relative difference": "sci", "test accuracy (%)": ".2f"},
        [
            [
                Phrase(f"equal.{way}"),
                measured.differences[way],
                _percent(measured, measured.learnt[way].accuracies) if way in measured.learnt else None,
            ]
            for way in (f"uneven-{way}" for way in lab.UNEVEN_WAYS)
        ],
    )


def tolerance(measured: Lab2Measurements) -> PageTable:
    """The accuracy under every rule, with one faulty worker of each kind."""
    return PageTable(
        {"rule": "", **{f"{fault} (%)": ".1f" for fault in lab.FAULTS}},
        [
            [
                Phrase(f"rule.{rule}"),
                *(
                    Phrase("faults.stopped") if its.stopped else _percent(measured, its.accuracies)
                    for its in (measured.faulty[fault, rule] for fault in lab.FAULTS)
                ),
            ]
            for rule in lab.RULES
        ],
    )


def _percent(measured: Lab2Measurements, accuracies: Sequence[float]) -> Measured:
    return accuracy_over(accuracies, measured.test_samples).scaled(100)


def tables(measured: Lab2Measurements) -> dict[str, Records]:
    """Tables for programs that the page does not show: every condition, worker, seed."""
    plan = measured.plan
    return {
        "exchange": [
            {
                "condition": condition,
                "branch": branch,
                "waiting (ms)": times.wait_ms.value,
                "waiting spread (ms)": times.wait_ms.spread,
                "moving (ms)": times.move_ms.value,
                "moving spread (ms)": times.move_ms.spread,
                "exchange (ms)": times.exchange_ms.value,
                "exchange spread (ms)": times.exchange_ms.spread,
            }
            for condition, branches in measured.branches.items()
            for branch, times in branches.items()
        ],
        "pace": [
            {
                "run": name,
                "samples per second (1/s)": pace.samples_per_s.value,
                "spread (1/s)": pace.samples_per_s.spread,
                "rank": rank,
                "own (ms)": own.value,
                "waiting (ms)": wait.value,
                "moving (ms)": move.value,
            }
            for name, pace in measured.paces.items()
            for rank, (own, wait, move) in enumerate(pace.ranks)
        ],
        "differences": [
            {"compared": compared, "relative difference": difference}
            for compared, difference in measured.differences.items()
        ],
        "learnt": [
            {"aggregation": name, "seed": seed, "test accuracy (1)": accuracy, "final loss (nat)": loss}
            for name, trained in measured.learnt.items()
            for seed, accuracy, loss in zip(
                plan.learn_seeds(name), trained.accuracies, trained.losses, strict=True
            )
        ],
        "faults": [
            {
                "fault": fault,
                "rule": rule,
                "seed": seed,
                "test accuracy (1)": accuracy,
                "stopped": trained.stopped,
            }
            for (fault, rule), trained in measured.faulty.items()
            for seed, accuracy in zip(
                plan.fault_seeds(fault, rule), trained.accuracies or ("",), strict=False
            )
        ],
    }
