"""Every number of the report, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.timing import UNIT_TIMES
from shoal_labs.lab4.measure import Lab4Measurements


def tables(measured: Lab4Measurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "results": _results(measured),
        "workers": _workers(measured),
        "curves": _curves(measured),
        "actions": _actions(measured),
        "microbatches": _microbatches(measured),
        "cuts": _cuts(measured),
    }


def _results(measured: Lab4Measurements) -> Records:
    return [
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
    ]


def _workers(measured: Lab4Measurements) -> Records:
    return [
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
    ]


def _curves(measured: Lab4Measurements) -> Records:
    return [
        {
            "run": name,
            "epoch": epoch,
            "training loss (nat)": f"{loss:.6g}",
            "validation accuracy (1)": f"{accuracy:.6g}",
        }
        for name, learnt in measured.learnt.items()
        for epoch, (loss, accuracy) in enumerate(zip(learnt.loss, learnt.accuracy, strict=True), 1)
    ]


def _actions(measured: Lab4Measurements) -> Records:
    """The step of each pipeline that the timelines show, and the ideal one."""
    return [
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
    ]


def _microbatches(measured: Lab4Measurements) -> Records:
    plan = measured.plan
    return [
        {
            "micro-batches": count,
            "step (ms)": measured.ways[name].step_ms.value,
            "bubble (1)": measured.bubble(name).value,
            "spread (1)": measured.bubble(name).spread,
            "with the measured stage times (1)": measured.pipelined[name].ideal.bubble,
            "formula (1)": FORMULAS["1f1b"].bubble_of(plan.workers, count, UNIT_TIMES),
        }
        for count, name in plan.counted().items()
    ]


def _cuts(measured: Lab4Measurements) -> Records:
    return [
        {
            "second stage begins at": layer,
            "step (ms)": measured.ways[name].step_ms.value,
            "spread (ms)": measured.ways[name].step_ms.spread,
            "first stage (ms)": measured.pipelined[name].stage_ms[0],
            "second stage (ms)": measured.pipelined[name].stage_ms[1],
        }
        for layer, name in measured.plan.cuts().items()
    ]
