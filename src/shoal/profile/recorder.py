"""Records spans and calls of one worker's steps in memory; a step ends with `optimizer.step()`.

Nothing is written while the program runs, so the disk does not disturb it, and a program that fails leaves nothing.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal.events.clocks import RunDelay
from shoal.events.file import Record
from shoal.events.spans import (
    EVALUATION,
    KEPT_EVERY,
    LANE,
    OUTSIDE_STEPS,
    SAVE,
    SYNCHRONISE,
    Kind,
    Span,
    host_ns,
    totals_of_calls,
)

NOTED_NAMES = {EVALUATION, SAVE, SYNCHRONISE}
FIRST_CHECK = 2
"""The first step whose gradients are looked at."""
KEPT_ALL = 2000
"""So many steps keep their spans, and of later ones every 20th."""


@dataclass
class Call:
    """A call of a group that has been issued and not yet waited for."""

    issue: Span
    done_ns: int | None = None
    """When its result was there, if that is known."""
    tells_done: bool = False
    """Whether that is going to be known: a thread that waits for Python's lock may say so late."""


class _Thread(threading.local):
    """What each thread has of its own."""

    inside = False
    """Whether it is in a span already: the root module's forward pass contains those of its parts."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        self.lane = LANE if thread is threading.main_thread() else thread.name


class Recorder:
    """The spans of one process.

    Other threads may record as well: DDP issues its all-reduces in the thread of the backward pass.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        self.active = True
        self.steps: list[Record] = []
        self._spans: list[Span] = []
        self._sequences: dict[str, int] = {}
        self.thread = _Thread()
        self._lock = threading.Lock()
        self._begin_ns: int | None = None
        self.delay: RunDelay | None = None
        """Since the first span."""
        self._seconds = 0.0
        self._in_backward: list[Call] | None = None
        self.rows = 0
        """Samples of the forward passes of this step so far."""
        self.model: Callable[[], Any] = lambda: None
        """The root module of the last forward pass with gradients, if it still exists."""
        self._checks = 0
        self._used: set[int] = set()
        self._unused: dict[int, str] = {}
        self._searches = False

    @contextmanager
    def span(self, name: str, kind: Kind) -> Generator[None]:
        """Measure the body of a `with`. Before the first span, a program only gets ready."""
        start_ns = host_ns()
        if self._begin_ns is None:
            self._begin_ns, self.delay = start_ns, RunDelay()
            self._spans.clear()
        self.thread.inside = True
        try:
            yield
        finally:
            self.thread.inside = False
            self.add(name, kind, start_ns)

    @contextmanager
    def backward(self) -> Generator[None]:
        """Measure a backward pass and the calls in it, for whose results DDP waits in C++ before the pass ends."""
        self._in_backward = calls = []
        try:
            with self.span("backward", "compute"):
                yield
        finally:
            self._in_backward = None
            self._settle(calls, host_ns())

    def add(self, name: str, kind: Kind, start_ns: int) -> None:
        """Add a span that ends now."""
        self._spans.append(Span(OUTSIDE_STEPS, name, kind, self.thread.lane, start_ns, host_ns()))

    def issued(self, name: str, start_ns: int, num_bytes: int, group: str, peer: int = -1) -> Call:
        """Note a call that has just been issued."""
        with self._lock:
            number = self._sequences[group] = self._sequences.get(group, 0) + 1
        call = Call(
            Span(OUTSIDE_STEPS, name, "move", LANE, start_ns, host_ns(), num_bytes, group, number, peer)
        )
        if self._in_backward is not None:
            self._in_backward.append(call)
        return call

    def waited(self, call: Call, start_ns: int, end_ns: int) -> None:
        """Add a call once it has been waited for; again is no news."""
        if call.done_ns != -1:
            call.done_ns = -1
            issue = call.issue
            wait = issue._replace(kind="wait", start_ns=start_ns, end_ns=end_ns, bytes=0)
            self._spans += (issue, wait)

    def _settle(self, calls: Sequence[Call], end_ns: int) -> None:
        """The waits of calls that nothing in Python has waited for.

        DDP waits for its buckets in their order once all gradients are there, which is when it has issued the last one.
        """
        calls = [call for call in calls if call.done_ns != -1]
        now_ns = max((call.issue.end_ns for call in calls), default=0)
        for call in calls:
            done_ns = call.done_ns or (end_ns if call.tells_done else now_ns)
            start_ns, now_ns = now_ns, max(now_ns, min(done_ns, end_ns))
            self.waited(call, start_ns, now_ns)

    def end_step(self) -> None:
        """Log a step: what was recorded since the last one."""
        with self._lock:
            count = len(self._spans)
            spans, self._spans[:count] = self._spans[:count], []
            end_ns = host_ns()
            begin_ns = self._begin_ns or end_ns
            self._begin_ns = end_ns
            self._seconds += (end_ns - begin_ns) / 1e9
            calls = [span for span in spans if span.group]
            number = len(self.steps)
            record: Record = {"event": "step", "step": number, "seconds": round(self._seconds, 9)}
            own = [span for span in spans if span.lane == LANE]
            record["totals_ns"] = own_ns(own)
            record |= totals_of_calls(calls)._asdict() | _noted(own)
            if self.rows:
                record["rows"], self.rows = self.rows, 0
            if number < KEPT_ALL or number % KEPT_EVERY == 0:
                record["spans"] = [span[1:] for span in spans]
            self.steps.append(record)

    def check_gradients(self, params: Sequence[Any]) -> None:
        """Before every 20th update: which of its parameters have no gradient."""
        if len(self.steps) % KEPT_EVERY != FIRST_CHECK:
            return
        absent = [param for param in params if param.requires_grad and param.grad is None]
        self._checks += 1
        model = self.model()
        self._searches |= bool(getattr(model, "find_unused_parameters", False))
        self._used |= {id(param) for param in params} - {id(param) for param in absent}
        if absent:
            names = {id(param): name for name, param in model.named_parameters()} if model is not None else {}
            self._unused |= {id(param): names.get(id(param), str(tuple(param.shape))) for param in absent}

    def parameters(self) -> Record:
        """What was found about gradients; nothing if no parameter ever had one, as under strategies that hide them."""
        unused = [name for param, name in self._unused.items() if param not in self._used]
        count = len(self._used) + len(unused)
        found = {"checks": self._checks, "count": count, "searches": self._searches}
        return found | {"unused": unused} if self._used else {}

    def measuring(self, name: str, kind: Kind, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, measured where it is no part of a measured one."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            if not self.active or self.thread.inside:
                return function(*args, **kwargs)
            with self.backward() if name == "backward" else self.span(name, kind):
                return function(*args, **kwargs)

        return measured


def _noted(spans: Sequence[Span]) -> Record:
    """What stalled a step, and how often the host waited for its GPU in it."""
    named: dict[str, list[Span]] = {}
    for span in spans:
        if span.name in NOTED_NAMES:
            named.setdefault(span.name, []).append(span)
    stalls_ns: dict[str, int] = {}
    if passes := named.get(EVALUATION):  # with all that is between two passes: batches, metrics
        stalls_ns[EVALUATION] = passes[-1].end_ns - passes[0].start_ns
    if saves := named.get(SAVE):
        stalls_ns[SAVE] = sum(span.duration_ns for span in saves)
    noted: Record = {"stalls_ns": stalls_ns} if stalls_ns else {}
    if reads := named.get(SYNCHRONISE):
        noted["synchronised"] = [len(reads), sum(span.duration_ns for span in reads)]
    return noted


def own_ns(spans: Sequence[Span]) -> dict[str, int]:
    """Nanoseconds by kind, each moment counted for the innermost span alone; calls of groups have a total of their own.

    >>> call = Span(0, "all_reduce", "wait", LANE, 60, 100, group="world")
    >>> own_ns([call, Span(0, "backward", "compute", LANE, 0, 100)])
    {'compute': 60}
    """
    totals: dict[str, int] = {}
    around: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        while around and around[-1].end_ns <= span.start_ns:
            around.pop()
        if not span.group:
            totals[span.kind] = totals.get(span.kind, 0) + span.duration_ns
        if around and not around[-1].group:
            overlap_ns = min(span.end_ns, around[-1].end_ns) - span.start_ns
            totals[around[-1].kind] -= overlap_ns
        around.append(span)
    return totals
