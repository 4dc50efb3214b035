"""What fills the lab's page: values, tables, code; and the tables of single runs, for programs."""

from collections.abc import Sequence

from shoal.kit.base import Phrase
from shoal.kit.findings import accuracy_over, over_seeds
from shoal.kit.page import Records
from shoal.kit.settings import Link
from shoal.kit.training import algorithms
from shoal_labs.lab2 import averaging
from shoal_labs.lab2 import plan as lab
from shoal_labs.lab2.averaging import ALL, calls_of
from shoal_labs.lab2.figures import MOST_LOSS, PACES, SMOOTHED_OVER
from shoal_labs.lab2.measure import BYTES_PER_ELEMENT, LAST_STEPS, Lab2Measurements, Trained
from shoal_labs.page.page import source
from shoal_labs.page.table import Cell, PageTable, records
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
            **vars(size),
            "rounds": size.rounds["even"],
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
            "slow": lab.SLOW,
            "slowdown": lab.SLOWDOWN,
            "share": 100 * lab.SHARE,
            "mbit": link.bits_per_s / 1e6,
            "latency": 1e3 * link.latency_s,
            "fault_workers": lab.FAULT_WORKERS,
            "seeds": list(plan.learn_runs("sgd-sum").values()),
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
            **exchanges(measured),
            **aggregations(measured),
            "bottleneck": speeds(measured),
            "tolerance": tolerance(measured),
        },
        code={
            **{name: source(averaging.BRANCHES[name]) for name in SHOWN},
            "helpers": "\n".join(map(source, HELPERS)),
            "ring": source(algorithms.ring),
        },
    )


def exchanges(measured: Lab2Measurements) -> dict[str, PageTable]:
    """The exchange of a step by every branch: its parts, what a bottleneck does to it, what was called."""
    split: list[list[Cell]] = [
        [Phrase(f"branch.{name}"), times.wait_ms, times.move_ms, times.exchange_ms]
        for name, times in measured.branches["even"].items()
    ]
    under: list[list[Cell]] = [
        [Phrase(f"branch.{name}"), *(times[name].exchange_ms for times in measured.branches.values())]
        for name in ALL
    ]
    record: list[list[Cell]] = [
        [
            Phrase(f"branch.{name}"),
            sorted(calls_of(name)),
            sorted(its.operations),
            its.calls,
            its.sent / BYTES_PER_ELEMENT / measured.parameters,
            its.as_labelled,
        ]
        for name, its in measured.recorded.items()
    ]
    calls = {"label": "", "called": "", "calls per step": "d", "sent (buffers)": ".2f", "as labelled": ""}
    return {
        "split": PageTable(
            {"branch": "", "waiting (ms)": ".2f", "moving (ms)": ".2f", "exchange (ms)": ".2f"}, split
        ),
        "collectives": PageTable(
            {"branch": "", **{f"{name} (ms)": ".2f" for name in measured.branches}}, under
        ),
        "record": PageTable({"branch": "", **calls}, record),
    }


def aggregations(measured: Lab2Measurements) -> dict[str, PageTable]:
    """The end of training with sum and mean, what is the same weight by weight, and uneven batches."""
    learnt, apart = measured.learnt, measured.differences
    uneven = [f"uneven-{way}" for way in lab.UNEVEN_WAYS]
    return {
        "aggregation": PageTable(
            {"aggregation": "", "final loss (nat)": ".4f", "test accuracy (%)": ".2f"},
            [
                [Phrase(f"learn.{way}"), over_seeds(learnt[way].losses), _percent(measured, learnt[way])]
                for way in lab.LEARNING
                if way not in uneven
            ],
        ),
        "equal": PageTable(
            {"compared": "", "relative difference": "sci"},
            [
                [Phrase(f"equal.{name}"), apart[name]]
                for name in measured.plan.compared_weights()
                if name not in uneven
            ],
        ),
        "uneven": PageTable(
            {"aggregation": "", "relative difference": "sci", "test accuracy (%)": ".2f"},
            [
                [
                    Phrase(f"equal.{way}"),
                    apart[way],
                    _percent(measured, learnt[way]) if way in learnt else None,
                ]
                for way in uneven
            ],
        ),
    }


def speeds(measured: Lab2Measurements) -> PageTable:
    """Speed under every condition."""
    columns = {"condition": "", "samples per second (1/s)": ",.0f", "relative speed": ".2f"}
    even = measured.paces["even"].samples_per_s.value
    rows: list[list[Cell]] = [
        [
            Phrase(f"condition.{name}"),
            pace.samples_per_s,
            pace.samples_per_s.value / even,
            pace.wait_ms,
            pace.move_ms,
        ]
        for name, pace in ((name, measured.paces[name]) for name in PACES)
    ]
    return PageTable({**columns, "waiting (ms)": ".2f", "moving (ms)": ".2f"}, rows)


def tolerance(measured: Lab2Measurements) -> PageTable:
    """The accuracy under every rule, with one faulty worker of each kind."""
    rows: list[list[Cell]] = [
        [Phrase(f"rule.{rule}"), *(_percent(measured, measured.faulty[fault, rule]) for fault in lab.FAULTS)]
        for rule in lab.RULES
    ]
    return PageTable({"rule": "", **{f"{fault} (%)": ".1f" for fault in lab.FAULTS}}, rows)


def _percent(measured: Lab2Measurements, trained: Trained) -> Cell:
    """The accuracy of some runs."""
    if trained.stopped:
        return Phrase("faults.stopped")
    return accuracy_over(trained.accuracies, measured.test_samples).scaled(100)


def tables(measured: Lab2Measurements) -> dict[str, Records]:
    """Tables for programs that the page does not show: every condition, worker, seed."""
    plan = measured.plan
    rows: dict[str, tuple[Sequence[str], list[list[Cell]]]] = {
        "exchange": (
            ("condition", "branch", "waiting (ms)", "moving (ms)", "exchange (ms)"),
            [
                [condition, branch, times.wait_ms, times.move_ms, times.exchange_ms]
                for condition, branches in measured.branches.items()
                for branch, times in branches.items()
            ],
        ),
        "pace": (
            ("run", "samples per second (1/s)", "rank", "own (ms)", "waiting (ms)", "moving (ms)"),
            [
                [name, pace.samples_per_s, rank, *(part.value for part in parts)]
                for name, pace in measured.paces.items()
                for rank, parts in enumerate(pace.ranks)
            ],
        ),
        "differences": (
            ("compared", "relative difference"),
            [[compared, difference] for compared, difference in measured.differences.items()],
        ),
        "learnt": (
            ("aggregation", "seed", "test accuracy (1)", "final loss (nat)"),
            [
                [way, *each]
                for way, trained in measured.learnt.items()
                for each in zip(
                    plan.learn_runs(way).values(), trained.accuracies, trained.losses, strict=True
                )
            ],
        ),
        "faults": (
            ("fault", "rule", "seed", "test accuracy (1)", "stopped"),
            [
                [fault, rule, seed, accuracy, trained.stopped]
                for (fault, rule), trained in measured.faulty.items()
                for seed, accuracy in zip(
                    plan.fault_runs(fault, rule).values(), trained.accuracies or [None], strict=False
                )
            ],
        ),
    }
    return {
        name: records(PageTable(dict.fromkeys(columns, ""), cells)) for name, (columns, cells) in rows.items()
    }
