"""Between the loop and the event file: losses are read when they are ready, checked, and written down.

On the CPU a loss is a number at once. On a GPU reading it would make the host wait for the device in every step, so
there losses are read together, every KEPT_EVERY steps; a loss that is not finite is then still traced to its own step.
"""

import math
import time
from typing import Any, NamedTuple

import torch

from shoal.errors import DivergedError
from shoal.events.calls import Call
from shoal.events.file import EventFile
from shoal.events.spans import KEPT_EVERY, Span, SpanRecorder, totals_ns
from shoal.parallel.strategy import StepResult
from shoal.train.observer import Observer
from shoal.train.progress import Progress


class _Pending(NamedTuple):
    step: int
    epoch: int
    num_samples: int
    lr: float
    result: StepResult
    marks: list[tuple[str, Any, Any, Any]]
    calls: list[Call]


class Calls:
    """What the group has done since the last look: `Traced` hands every finished call to `append`."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self.append = self._calls.append

    def take(self) -> list[Call]:
        """The calls since the last look."""
        taken = self._calls[:]
        self._calls.clear()
        return taken


class StepLog:
    """Takes every step of the loop. `progress` gets its losses and seconds from here, for they are known only here."""

    def __init__(
        self,
        events: EventFile,
        span: SpanRecorder,
        calls: Calls,
        observer: Observer,
        device: torch.device,
        keep_all_spans: bool,
    ) -> None:
        self._events = events
        self._span = span
        self._calls = calls
        self._observer = observer
        self._lag = KEPT_EVERY if device.type == "cuda" else 1
        self._keep_all = keep_all_spans
        self._calls.take()  # what was called while building is no part of a step
        self._pending: list[_Pending] = []
        self._since = time.perf_counter()
        self.stop_signal = 0
        """The signal that asks the workers to stop, once all of them know it."""

    def begin(self, step: int) -> None:
        """Before a step: decide whether its spans are measured."""
        self._span.active = self._lag == 1 or self._keeps_spans(step)

    def step(self, progress: Progress, result: StepResult, num_samples: int, lr: float) -> Progress:
        """After a step; `progress` already counts it."""
        marks, calls = self._span.take(), self._calls.take()
        self._pending.append(
            _Pending(progress.step - 1, progress.epoch, num_samples, lr, result, marks, calls)
        )
        return self.settle(progress) if len(self._pending) >= self._lag else progress

    def settle(self, progress: Progress) -> Progress:
        """Wait for the losses of all steps so far, check them and write them down."""
        if not self._pending:
            return progress
        pending, self._pending = self._pending, []
        losses = (
            [pending[0].result.loss.item()]
            if len(pending) == 1
            else torch.stack([entry.result.loss for entry in pending]).tolist()
        )
        now = time.perf_counter()
        per_step = (now - self._since) / len(pending)
        self._since = now
        for entry, loss in zip(pending, losses, strict=True):
            settle = entry.result.settle
            self.stop_signal = self.stop_signal or (settle() if settle else entry.result.stop_signal)
            progress = progress.settled(loss * entry.num_samples, per_step)
            self._write(entry, loss, progress.seconds)
        self._observer.stepped(progress, losses[-1])
        return progress

    def restart_clock(self) -> None:
        """After evaluation or a checkpoint, whose time is not training time."""
        self._since = time.perf_counter()
        self._calls.take()

    def _keeps_spans(self, step: int) -> bool:
        return self._keep_all or step % KEPT_EVERY == 0

    def _write(self, entry: _Pending, loss: float, seconds: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss of step {entry.step} (epoch {entry.epoch}) is {loss}: training has diverged",
                f"The learning rate was {entry.lr:g}: try a tenth of it, or --clip-norm 1.",
            )
        spans: list[Span] = self._span.read(entry.marks, entry.step)
        record: dict[str, Any] = {
            "event": "step",
            "step": entry.step,
            "epoch": entry.epoch,
            "samples": entry.num_samples,
            "loss": loss,
            "lr": entry.lr,
            "seconds": round(seconds, 6),
            "totals_ns": totals_ns(spans),
            "blocked_ns": sum(call.blocked_ns for call in entry.calls),
        }
        if self._keeps_spans(entry.step):
            record["spans"] = [span[1:] for span in spans]
            record["calls"] = entry.calls
        self._events.append(record)
