"""Supervise started workers: read their reports, notice ends and failures, end all after the first failure."""

import math
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from shoal.errors import WorkerError
from shoal.launch.failure import Failure, reported_failure, unreported_end
from shoal.launch.handle import WorkerHandle, end_all
from shoal.launch.reports import Report
from shoal.launch.signals import SignalRelay

LOOK_EVERY_S = 0.1
"""How often ends are looked for where no file descriptor announces them."""


@dataclass(frozen=True)
class Policy:
    """What happens after a failure."""

    grace_s: float = 3.0
    """How long the other workers may take to end by themselves: time to report what they saw."""


class Listener:
    """Receives what workers report. This one ignores everything."""

    def heard(self, rank: int, report: Report) -> None:
        """A worker has reported something other than a failure."""

    def printed(self, rank: int, output: bytes) -> None:
        """All workers have ended, and this is what one of them has printed."""

    def advice(self) -> Sequence[str]:
        """Further lines for the hint of a failure: what the user can do."""
        return []


def supervise(
    handles: Sequence[WorkerHandle],
    policy: Policy,
    listener: Listener | None = None,
    signals: SignalRelay | None = None,
) -> None:
    """Return when all workers have finished; raise the first failure. No worker is left in any case.

    The first signal that `signals` receives is passed on, and the workers decide what to do. After the second one
    they are killed, and KeyboardInterrupt is raised.
    """
    listener, signals = listener or Listener(), signals or SignalRelay()
    supervision = _Supervision(policy, listener)
    try:
        signals.pass_to(handles)
        running = list(handles)
        while running and len(signals.received) < 2 and time.monotonic() < supervision.deadline:
            wait([descriptor for handle in running for descriptor in handle.descriptors()], LOOK_EVERY_S)
            running = [handle for handle in running if not supervision.has_ended(handle)]
    finally:
        end_all(handles)
    for handle in handles:
        listener.printed(handle.rank, handle.output)
    if len(signals.received) > 1:
        raise KeyboardInterrupt
    first = supervision.first_failure
    if first is not None:
        raise _error_of(first, len(handles), listener.advice(), signals.received) from first.cause


class _Supervision:
    """The first failure among the workers, and until when the others may run after it."""

    def __init__(self, policy: Policy, listener: Listener) -> None:
        self._policy, self._listener = policy, listener
        self.first_failure: WorkerHandle | None = None
        self.deadline = math.inf

    def has_ended(self, handle: WorkerHandle) -> bool:
        """Take a worker's reports, and say whether it has ended.

        The worker itself is asked, not its pipe: a child that it has forked may hold the pipe open.
        """
        code = (
            handle.poll()
        )  # before reading, so that the last report of a worker that has ended is in the pipe
        for report in handle.read():
            if report["kind"] == "failed":
                handle.failure = Failure(**report["failure"])
            else:
                handle.finished |= report["kind"] == "finished"
                self._listener.heard(handle.rank, report)
        if handle.failure or (code is not None and not handle.finished):
            self._note(handle)
        return code is not None

    def _note(self, handle: WorkerHandle) -> None:
        """Keep the first failure; one that blames another rank gives way to one that does not."""
        first = self.first_failure
        if first is None:
            self.deadline = time.monotonic() + self._policy.grace_s
        if first is None or (_blames_another(first) and not _blames_another(handle)):
            self.first_failure = handle


def _blames_another(handle: WorkerHandle) -> bool:
    return handle.failure is not None and handle.failure.blames is not None


def _error_of(handle: WorkerHandle, size: int, advice: Sequence[str], signals: Sequence[int]) -> WorkerError:
    failure, code = handle.failure, handle.poll() or 0
    if signals and (code == -signals[0] or (failure and failure.name == "KeyboardInterrupt")):
        name = signal.Signals(signals[0]).name
        return WorkerError(f"stopped by {name}", "\n".join(advice), 128 + signals[0])
    if failure is None:
        return unreported_end(handle.rank, size, code, handle.output.decode(errors="replace"), advice)
    return reported_failure(handle.rank, size, failure, advice)
