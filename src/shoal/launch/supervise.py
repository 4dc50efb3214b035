"""Supervise workers: pass signals on, read reports, notice ends, end all after the first failure.

Processes run in sessions of their own, so they receive no signal of the launcher's directly.
"""

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

from shoal.comm.liveness.judge import STOP_GRACE_S
from shoal.comm.liveness.limits import NO_PROGRESS_LIMIT_S, PAUSED_S, SETTINGS
from shoal.errors import WorkerError
from shoal.launch.failure import Failure, reported_failure, unreported_end
from shoal.launch.handles import WorkerHandle, end_all
from shoal.launch.hangs.board import Board
from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.standing import Standing
from shoal.launch.hangs.watch import Watch, concerns_others, explained
from shoal.launch.reports import Report
from shoal.training.stop import check_series, stop_signals, tell_series

LOOK_EVERY_S = 0.1
"""How often ends are looked for where no file descriptor announces them."""


class SignalRelay:
    """While this context is open, SIGINT, SIGTERM and SIGHUP are noted instead of raised; the first one is passed on.

    Ctrl-Z stops and continues the workers with the launcher. Only the main thread can handle signals; in any other
    thread this does nothing.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._handles: Sequence[WorkerHandle] = ()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "SignalRelay":
        check_series()
        if threading.current_thread() is threading.main_thread():
            handlers: dict[int, Any] = {
                **dict.fromkeys(stop_signals(), self._take),
                signal.SIGTSTP: self._pause,
            }
            self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        check_series()

    def pass_to(self, handles: Sequence[WorkerHandle]) -> None:
        """The workers from now on; a signal that came while they started is passed on now."""
        self._handles = handles
        for number in self.received[:1]:
            self._send(number)

    def _send(self, number: int) -> None:
        for handle in self._handles:
            handle.send_signal(number)

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Raises nothing, so that it interrupts no clean-up."""
        self.received.append(number)
        tell_series(number)
        if len(self.received) == 1:
            self._send(number)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)


@dataclass(frozen=True)
class Policy:
    """How long a supervisor waits, and for what. It waits without a limit only for workers that run and are at work."""

    grace_s: float = 3.0
    """How long the other workers may take to end by themselves after a failure: time to report what they saw."""
    stopped_s: float = STOP_GRACE_S + 2.0
    """How long a worker may be stopped (SIGSTOP): a little longer than for the other workers, which know more."""
    end_s: float = NO_PROGRESS_LIMIT_S
    """How long a worker may take to end after it has reported that its work is done."""
    finish_s: float = math.inf
    """How long the others may work on after the first has finished: for ever in a user's program."""
    limit_s: float = NO_PROGRESS_LIMIT_S
    """How long a worker may wait in a call of torch's groups."""

    @classmethod
    def within(cls, limit_s: float, finish_s: float = math.inf) -> "Policy":
        """The policy for workers that count as lost after `limit_s` without progress."""
        return cls(
            stopped_s=min(STOP_GRACE_S, limit_s) + 2.0, end_s=limit_s, finish_s=finish_s, limit_s=limit_s
        )


class Listener:
    """Receives what workers report. This one ignores everything."""

    def heard(self, rank: int, report: Report) -> None:
        """A worker has reported something other than a failure."""

    def printed(self, rank: int, output: bytes) -> None:
        """All workers have ended, and this is what one of them has printed."""

    def advice(self) -> Sequence[str]:
        """Further lines for the hint of a failure: what the user can do."""
        return []

    def goes_on_without(self, handle: WorkerHandle) -> bool:
        """Whether the others continue without a worker that has ended without a report."""
        del handle
        return False

    def role_of(self, rank: int, code: int) -> Sequence[str]:
        """Lines about a rank that is gone, with this exit code if it has one: what it had to do, what it may mean."""
        del rank, code
        return []


def supervise(
    handles: Sequence[WorkerHandle],
    policy: Policy,
    listener: Listener | None = None,
    signals: SignalRelay | None = None,
    board: Board | None = None,
) -> None:
    """Return when all workers have finished; raise the first failure. No worker is left in any case.

    The first signal that `signals` receives is passed on, and the workers decide what to do. After the second one
    they are killed, and KeyboardInterrupt is raised. Of workers that wait for each other, `board` shows where.
    """
    listener, signals = listener or Listener(), signals or SignalRelay()
    watch = Watch(board, policy.limit_s)
    supervision, hang = _Supervision(policy, listener, watch, handles), None
    standings = list[Standing]()
    try:
        signals.pass_to(handles)
        running = list(handles)
        while running and len(signals.received) < 2 and time.monotonic() < supervision.deadline and not hang:
            wait([descriptor for handle in running for descriptor in handle.descriptors()], LOOK_EVERY_S)
            running = [handle for handle in running if not supervision.has_ended(handle)]
            supervision.look_for_late(running, len(handles))
            if supervision.first_failure is None:
                hang = watch.look(handles)
        if supervision.needs_others:
            standings = watch.standings(handles)
    finally:
        for handle in end_all(handles):
            warnings.warn(
                f"{handle.name()} was killed and has not ended: it waits in the kernel, for a disk or a network "
                "file system. It ends when that answers, or with the machine.",
                stacklevel=2,
            )
    for handle in handles:
        listener.printed(handle.rank, handle.output)
    if len(signals.received) > 1:
        raise KeyboardInterrupt
    first = supervision.first_failure
    if first is not None:
        error = _error_of(first, len(handles), listener, signals.received)
        if standings and concerns_others(first) and not signals.received:
            error = explained(error, first.failure and first.failure.blames, standings)
        raise error from first.cause
    if hang is not None:
        raise hang


class _Supervision:
    """The first failure among the workers, and until when the others may run after it."""

    def __init__(
        self, policy: Policy, listener: Listener, watch: Watch, handles: Sequence[WorkerHandle]
    ) -> None:
        self._policy, self._listener = policy, listener
        self._watch, self._handles = watch, handles
        self.needs_others = False
        """Whether a failure shows only with where the others are; they have been asked."""
        self.first_failure: WorkerHandle | None = None
        self.deadline = math.inf
        self._finished_at: dict[int, float] = {}
        self._lost: dict[int | None, WorkerHandle] = {}
        """Workers that are gone, and without which the others continue."""
        self._killed: set[int] = set()
        """Workers that had done their work and did not end: they are not waited for any longer."""
        self._last_look = self._running_since = time.monotonic()
        """When the supervisor itself last looked, and since when it has run without a pause (Ctrl-Z)."""

    def has_ended(self, handle: WorkerHandle) -> bool:
        """Take a worker's reports, and say whether it has ended.

        The worker itself is asked, not its pipe: a child that it has forked may hold the pipe open.
        """
        # Before reading, so that the last report of a worker that has ended is in the pipe.
        code = handle.poll()
        for report in handle.read():
            if report["kind"] == "failed":
                handle.failure = Failure(**report["failure"])
            elif report["kind"] == "where":
                handle.answer = report
            elif report["kind"] == "waited":
                handle.waited = Call(*report["call"])
                handle.made = [Call(*each) for each in report["made"]]
            else:
                if report["kind"] == "finished":
                    handle.finished = True
                    self._finished_at[handle.rank] = time.monotonic()
                self._listener.heard(handle.rank, report)
        is_gone = code is not None and not handle.finished and handle.failure is None
        if is_gone and self.first_failure is None and self._listener.goes_on_without(handle):
            self._lost[handle.rank] = handle
        elif is_gone or handle.failure:
            self._note(handle)
        return code is not None or handle.rank in self._killed

    def look_for_late(self, running: Sequence[WorkerHandle], size: int) -> None:
        """Give up workers that are stopped for too long, or that do not finish or end though others have."""
        now = time.monotonic()
        if now - self._last_look > PAUSED_S:
            self._running_since = now
        self._last_look = now
        for handle in running if self.first_failure is None else ():
            stopped_s = min(handle.stopped_s(), now - self._running_since)
            first_s, own_s = (
                now - max(since, self._running_since)
                for since in (
                    min(self._finished_at.values(), default=now),
                    self._finished_at.get(handle.rank, now),
                )
            )
            if handle.finished:
                if stopped_s > self._policy.stopped_s or own_s > self._policy.end_s:
                    handle.kill()
                    self._killed.add(handle.rank)
                    state = "stopped (SIGSTOP)" if stopped_s else "still there"
                    text = f"{handle.name()} had done its work, but was {state} {own_s:.0f} s later: killed"
                    warnings.warn(text, stacklevel=2)
            elif stopped_s > self._policy.stopped_s:
                handle.given_up = f"rank {handle.rank} of {size} is stopped (SIGSTOP)"
            elif first_s > self._policy.finish_s:
                handle.given_up = (
                    f"rank {handle.rank} of {size} has not finished {first_s:.0f} s after the first worker"
                )
            if handle.given_up:
                self._note(handle)

    def _note(self, handle: WorkerHandle) -> None:
        """Keep the first failure, unless a later one is closer to its cause.

        If it blames a rank without which the others were to continue, they could not.
        """
        blamed = handle.failure.blames if handle.failure is not None else None
        if blamed in self._lost:
            handle = self._lost[blamed]
        first = self.first_failure
        if first is None:
            self.deadline = time.monotonic() + self._policy.grace_s
        if first is None or _distance(handle) < _distance(first):
            self.first_failure = handle
        if concerns_others(handle) and not self.needs_others:
            self.needs_others = True
            self._watch.ask(self._handles)


def _distance(handle: WorkerHandle) -> int:
    """How far from its cause a failure was seen.

    0: it is the worker's own. 1: the worker saw what is wrong with another, and says more. 2: it only repeats that.
    """
    if handle.waited is not None:
        return 1
    if handle.failure is None or handle.failure.blames is None:
        return 0
    return 1 if handle.failure.hint else 2


def _error_of(handle: WorkerHandle, size: int, listener: Listener, signals: Sequence[int]) -> WorkerError:
    failure, code, advice = handle.failure, handle.poll() or 0, listener.advice()
    if signals and (code == -signals[0] or (failure and failure.name == "KeyboardInterrupt")):
        name = signal.Signals(signals[0]).name
        return WorkerError(f"stopped by {name}", "\n".join(advice), 128 + signals[0])
    if failure is None or failure.blames is not None:
        gone = handle.rank if failure is None or failure.blames is None else failure.blames
        advice = [*listener.role_of(gone, code if gone == handle.rank else 0), *advice]
    if handle.given_up and failure is None:
        hint = "\n".join([f"All workers have been ended. {SETTINGS}", *advice])
        return WorkerError(handle.given_up, hint, WorkerError.exit_code)
    if failure is None:
        return unreported_end(handle.rank, size, code, handle.output.decode(errors="replace"), advice)
    return reported_failure(handle.rank, size, failure, advice)
