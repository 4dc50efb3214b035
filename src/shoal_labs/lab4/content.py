"""What fills the lab's page: values, tables, code; and the tables for other programs that it does not show."""

from shoal.kit.base import Phrase
from shoal.kit.findings import of_samples
from shoal.kit.page import Records
from shoal.kit.runs import BUSY
from shoal.kit.strategies import FORMULAS, UNIT_TIMES, Rpc, linear, schedules
from shoal_labs.lab4.measure import Lab4Measurements, Way
from shoal_labs.lab4.plan import BATCH_SIZE, MICROBATCHES, MOMENTUM, RATE, SCHEDULES, STAGES
from shoal_labs.page.page import source
from shoal_labs.page.table import Cell, PageTable
from shoal_labs.page.template import Content
from shoal_labs.words import counted

SHOWN = {
    "rpc": Rpc._step,  # pyright: ignore[reportPrivateUsage]
    "gpipe": schedules.gpipe,
    "1f1b": schedules._one_f_one_b_pairs,  # pyright: ignore[reportPrivateUsage]
    "tensor": linear.ColumnLinear,
}
"""The code that the report prints."""


def content(measured: Lab4Measurements) -> Content:
    """Everything but figures and findings."""
    plan, size = measured.plan, measured.plan.size
    return Content(
        values={
            **measured.num_samples,
            "data": plan.data.name,
            "model": "lenet",
            "parameters": measured.parameters,
            "batch": BATCH_SIZE,
            "rate": RATE,
            "momentum": MOMENTUM,
            "epochs": counted("epoch", size.epochs),
            "timed": counted("epoch", size.timed_epochs),
            "workers": plan.workers,
            "cuts": STAGES[plan.workers],
            "rpc_cuts": STAGES[plan.rpc_stages],
            "microbatches": MICROBATCHES,
            "samples": BATCH_SIZE // MICROBATCHES,
            "cores": plan.cores,
            "rounds": len(measured.rounds["1f1b"].step_ms),
            "rpc_rounds": len(measured.rounds["rpc"].step_ms),
            "cut_rounds": len(measured.rounds["cut-fc1"].step_ms),
            "steps": size.round_steps,
        },
        each={
            "crowded": [{}] * (plan.workers > plan.cores),
            "busy": [{"part": 100 * measured.busiest}] * (measured.busiest > BUSY),
        },
        tables={
            "comparison": _comparison(measured),
            "times": _times(measured),
            "timelines": _timelines(measured),
            "microbatches": _microbatches(measured),
            "cuts": _cuts(measured),
        },
        code={name: source(what) for name, what in SHOWN.items()},
    )


def _comparison(measured: Lab4Measurements) -> PageTable:
    """Every way side by side: accuracy, time, memory, bytes, equality."""
    columns = {"way": "", "test accuracy (%)": ".2f", "step (ms)": ".2f", "memory of a worker (KiB)": ".0f"}
    columns |= {"sent in a step (KiB)": ",.0f", "difference after one step": "sci"}

    def row(name: str, way: Way) -> list[Cell]:
        learnt, samples = measured.learnt.get(name), measured.num_samples["test"]
        return [
            Phrase(f"way.{name}"),
            of_samples(learnt.test_accuracy, samples).scaled(100) if learnt else None,
            way.step_ms,
            _saved_kib(way),
            way.sent_bytes / 2**10,
            None if name == "single" else way.first_step,
        ]

    return PageTable(columns, [row(name, measured.ways[name]) for name in ("all-cores", *measured.plan.ways)])


def _saved_kib(way: Way) -> tuple[float, ...]:
    """What each worker saves."""
    return tuple(held.total / 2**10 for held in way.held)


def _times(measured: Lab4Measurements) -> PageTable:
    """What each worker does in a step."""
    columns = {"way": "", "worker": "d", "computing (%)": ".0f", "transfer (%)": ".0f", "idle (%)": ".0f"}
    return PageTable(
        {**columns, "computing (ms)": ".2f"},
        [
            [
                Phrase(f"way.{name}"),
                rank.rank,
                *(100 * part for part in (rank.own, rank.move, rank.wait)),
                rank.own * measured.ways[name].step_ms.value,
            ]
            for name in measured.plan.ways
            for rank in measured.ways[name].ranks
        ],
    )


def _timelines(measured: Lab4Measurements) -> PageTable:
    """The schedules: measured, ideal, and by formula."""
    columns = {"schedule": "", "measured (ms)": ".2f", "ideal (ms)": ".2f", "bubble (%)": ".0f"}
    columns |= {"ideal bubble (%)": ".0f", "formula (%)": ".0f", "live micro-batches": "d"}
    return PageTable(
        columns,
        [
            [
                Phrase(f"way.{name}"),
                pipelined.makespan,
                pipelined.ideal.makespan,
                measured.bubble(name).scaled(100),
                100 * pipelined.ideal.bubble,
                100 * FORMULAS[name].bubble_of(measured.plan.workers, MICROBATCHES, UNIT_TIMES),
                pipelined.live,
            ]
            for name in SCHEDULES
            for pipelined in [measured.pipelined[name]]
        ],
    )


def _microbatches(measured: Lab4Measurements) -> PageTable:
    """The bubble by number of micro-batches."""
    columns = {"micro-batches": "d", "step (ms)": ".2f", "bubble (%)": ".0f"}
    columns |= {"with the measured stage times (%)": ".0f", "formula (%)": ".0f"}
    return PageTable(
        columns,
        [
            [
                count,
                measured.ways[name].step_ms,
                measured.bubble(name).scaled(100),
                100 * measured.pipelined[name].ideal.bubble,
                100 * FORMULAS["1f1b"].bubble_of(measured.plan.workers, count, UNIT_TIMES),
            ]
            for count, name in measured.plan.counted().items()
        ],
    )


def _cuts(measured: Lab4Measurements) -> PageTable:
    """Two stages, divided at different layers."""
    columns = {"second stage begins at": "", "first stage (ms)": ".2f", "second stage (ms)": ".2f"}
    columns |= {"step (ms)": ".2f", "sent in a step (KiB)": ",.0f", "memory of a worker (KiB)": ".0f"}
    return PageTable(
        columns,
        [
            [
                layer,
                *measured.pipelined[name].stage_ms,
                measured.ways[name].step_ms,
                measured.ways[name].sent_bytes / 2**10,
                _saved_kib(measured.ways[name]),
            ]
            for layer, name in measured.plan.cuts().items()
        ],
    )


def tables(measured: Lab4Measurements) -> dict[str, Records]:
    """What no table of the page shows: every run, every worker, curves, and the actions of the timelines."""
    return {
        "results": [
            {
                "run": name,
                "workers": len(way.ranks),
                "test accuracy (1)": measured.learnt[name].test_accuracy if name in measured.learnt else "",
                "test samples": measured.num_samples["test"] if name in measured.learnt else "",
                "step (ms)": way.step_ms.value,
                "spread (ms)": way.step_ms.spread,
                "sent in a step (B)": way.sent_bytes,
                "difference after one step": way.first_step,
                "ready without a core (1)": "" if way.not_scheduled is None else way.not_scheduled,
            }
            for name, way in measured.ways.items()
        ],
        "workers": [
            {
                "run": name,
                "rank": rank.rank,
                "computing (1)": rank.compute,
                "moving (1)": rank.move,
                "waiting (1)": rank.wait,
                "the rest (1)": rank.other,
                "parameters (B)": held.parameters,
                "optimizer state (B)": held.state,
            }
            for name, way in measured.ways.items()
            for rank, held in zip(way.ranks, way.held, strict=True)
        ],
        "curves": [
            {
                "run": name,
                "epoch": epoch,
                "training loss (nat)": f"{loss:.6g}",
                "validation accuracy (1)": f"{accuracy:.6g}",
            }
            for name, learnt in measured.learnt.items()
            for epoch, (loss, accuracy) in enumerate(zip(learnt.loss, learnt.accuracy, strict=True), 1)
        ],
        "actions": [
            {
                "run": name,
                "timeline": kind,
                "stage": stage,
                "action": str(each.action),
                "start (ms)": f"{each.start:.4f}",
                "end (ms)": f"{each.end:.4f}",
            }
            for name, pipelined in measured.pipelined.items()
            for kind, shown in (("measured", pipelined.typical), ("ideal", pipelined.ideal))
            for stage, row in enumerate(shown.rows)
            for each in row
        ],
    }
