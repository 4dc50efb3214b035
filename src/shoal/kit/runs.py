"""Finished runs: their folders, events and numbers, and comparisons of several."""

from shoal.compare.comparison import ComparedRun, compare
from shoal.compare.earlier import earlier_result, earlier_runs, to_continue_from
from shoal.compare.machine import machine
from shoal.compare.watch import LINE_EVERY_S, Watch, watch_for
from shoal.compare.weight_difference import FIRST_STEP_BOUND, first_step_difference, largest_difference
from shoal.events.clocks import BUSY
from shoal.events.file import Record, read_events
from shoal.events.fingerprint import check_weights
from shoal.events.folder import RunFolder, write_whole
from shoal.events.spans import Span
from shoal.events.steps import StepRecord, settled, steps_of
from shoal.report.communication import WARM_UP_STEPS, RankShares
from shoal.report.finished_runs import Array, Curve, Run, curve_of, mean_curve, read_run

__all__ = [
    "BUSY",
    "FIRST_STEP_BOUND",
    "LINE_EVERY_S",
    "WARM_UP_STEPS",
    "Array",
    "ComparedRun",
    "Curve",
    "RankShares",
    "Record",
    "Run",
    "RunFolder",
    "Span",
    "StepRecord",
    "Watch",
    "check_weights",
    "compare",
    "curve_of",
    "earlier_result",
    "earlier_runs",
    "first_step_difference",
    "largest_difference",
    "machine",
    "mean_curve",
    "read_events",
    "read_run",
    "settled",
    "steps_of",
    "to_continue_from",
    "watch_for",
    "write_whole",
]
