"""The step log: reads the loss of each step, checks it and writes it to the event file.

On a GPU, reading a loss makes the host wait for the device. There, losses are read together every KEPT_EVERY steps; an
error about a loss that is not finite still names the step of that loss. The seconds since the last reading are divided
among the steps: with `--trace` by when the device finished each, otherwise equally.
"""

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from shoal.errors import DivergedError
from shoal.events.file import EventFile
from shoal.events.spans import KEPT_EVERY, CallTotals, Span, SpanRecorder, totals_ns, totals_of_calls
from shoal.strategies.not_finite import ALL_REMEDIES, Remedies
from shoal.strategies.strategy import StepResult
from shoal.training.observer import Observer
from shoal.training.progress import Progress


class _Pending(NamedTuple):
    step: int
    epoch: int
    num_samples: int
    lr: float
    result: StepResult
    marks: list[tuple[str, Any, Any, Any]]
    calls: list[Span]
    end: Any
    """The mark of its end."""


class StepLog:
    """Logs every step of the loop, and adds losses and seconds to `progress` when they are known.

    Seconds count training only: not evaluation, checkpoints or compiling.

    `calls` is the list to which the traced group appends its spans. With `reads_late`, losses are read every KEPT_EVERY
    steps.
    """

    def __init__(
        self,
        events: EventFile,
        span: SpanRecorder,
        calls: list[Span],
        observer: Observer,
        reads_late: bool,
        keep_all_spans: bool,
        remedies: Remedies = ALL_REMEDIES,
    ) -> None:
        self._remedies = remedies
        self._events = events
        self._span = span
        self._calls = calls
        self._observer = observer
        self._lag = KEPT_EVERY if reads_late else 1
        self._keep_all = keep_all_spans
        self._pending: list[_Pending] = []
        self.restart_clock()
        self.stop_signal = 0
        """The stop signal, once all workers have it; 0 for none."""
        self.sent_bytes = self.mapped_bytes = 0
        """Bytes that left this worker in the steps so far, and how many of them did not travel (`MAPPED`)."""
        self.compile_s = 0.0
        """Seconds in which this worker compiled (`--engine static`, `--compile`)."""

    def begin(self, step: int) -> None:
        """Decide whether the spans of the next step are measured."""
        self._span.active = self._lag == 1 or self._keep_all or step % KEPT_EVERY == 0

    def step(self, progress: Progress, result: StepResult, num_samples: int, lr: float) -> Progress:
        """Log a finished step; `progress` already counts it."""
        marks, calls = self._span.take(), self._calls[:]
        self._calls.clear()
        end = self._span.mark() if self._keep_all else None
        self._pending.append(
            _Pending(progress.step - 1, progress.epoch, num_samples, lr, result, marks, calls, end)
        )
        return self.settle(progress) if len(self._pending) >= self._lag else progress

    def settle(self, progress: Progress) -> Progress:
        """Wait for the losses of all pending steps, check them and write them."""
        if not self._pending:
            return progress
        pending, self._pending = self._pending, []
        if len(pending) == 1:
            losses = [pending[0].result.loss.item()]
        else:
            losses = torch.stack([entry.result.loss for entry in pending]).tolist()
        now = time.perf_counter()
        records: list[dict[str, Any]] = []
        training_s = now - self._since
        for entry, loss in zip(pending, losses, strict=True):
            record = self._record(entry, loss)
            records.append(record)
            compile_s = record["totals_ns"].get("compile", 0) / 1e9
            training_s -= compile_s
            self.compile_s += compile_s
        seconds = self._divided(max(0.0, training_s), pending)
        self._since, self._last_end = now, pending[-1].end
        for entry, record, step_s in zip(pending, records, seconds, strict=True):
            settle, loss = entry.result.settle, record["loss"]
            stop_signal = settle() if settle else entry.result.stop_signal
            self.stop_signal = self.stop_signal or stop_signal
            if not math.isfinite(loss):
                clip = ", or --clip-norm 1" * self._remedies.clips
                raise DivergedError(
                    f"the loss of step {entry.step} (epoch {entry.epoch}) is {loss}: training has diverged",
                    f"The learning rate was {entry.lr:g}: try {entry.lr / 10:g}{clip}.",
                )
            progress = progress.settled(loss * entry.num_samples, step_s)
            record["seconds"] = round(progress.seconds, 6)
            self._events.append(record)
        self._observer.stepped(progress, losses[-1])
        return progress

    def _record(self, entry: _Pending, loss: float) -> dict[str, Any]:
        """The event of a step; its seconds follow. Counts the bytes that it sent."""
        spans = self._span.read(entry.marks, entry.step)
        calls = self._count(entry.calls)
        record: dict[str, Any] = {
            "event": "step",
            "step": entry.step,
            "epoch": entry.epoch,
            "samples": entry.num_samples,
            "loss": loss,
            "lr": entry.lr,
            "seconds": 0.0,
            "totals_ns": totals_ns(spans),
            **calls._asdict(),
        }
        if self._keep_all or entry.step % KEPT_EVERY == 0:
            record["spans"] = [span[1:] for span in (*spans, *entry.calls)]
        return record

    def _divided(self, total_s: float, pending: Sequence[_Pending]) -> list[float]:
        if not self._keep_all or len(pending) == 1:
            return [total_s / len(pending)] * len(pending)
        marks = (self._last_end, *(entry.end for entry in pending))
        ends = [self._span.clock.nanoseconds(mark) for mark in marks]
        return [total_s * (end - before) / (ends[-1] - ends[0]) for before, end in pairwise(ends)]

    def count_rest(self) -> None:
        """Count the bytes since the last step: a worker that found no free share has pulled weights without a step."""
        self._count(self._calls)
        self._calls.clear()

    def _count(self, calls: Sequence[Span]) -> CallTotals:
        """Add the bytes of these calls."""
        totals = totals_of_calls(calls)
        self.sent_bytes += totals.sent_bytes
        self.mapped_bytes += totals.mapped_bytes
        return totals

    def restart_clock(self) -> None:
        """Exclude the time and the calls since the last step: building, evaluation and checkpoints are not training."""
        self._since = time.perf_counter()
        self._last_end = self._span.mark() if self._keep_all else None
        self._calls.clear()

    def discard(self) -> None:
        """Forget spans and calls since the last step of a worker that serves others."""
        self._span.take()
        self._calls.clear()
