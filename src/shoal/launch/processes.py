"""Workers as processes of this machine: started, watched, and all ended when one fails.

The launcher holds the store where workers meet, on loopback and on a port that the system chose, so that no death of
a worker takes it away. Workers run in sessions of their own: Ctrl-C reaches the launcher alone, which passes it on
once, and ending a worker ends whatever it started. A worker dies with its launcher (`member.die_with_parent`), and what
it had started dies too (`guard.py`).
"""

import contextlib
import json
import os
import selectors
import signal
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from shoal.comm.store import listen, serve
from shoal.errors import WorkerError
from shoal.launch.failure import Failure, told_by_its_end, told_by_worker
from shoal.launch.guard import guard
from shoal.launch.members import Member, Task, start
from shoal.launch.messages import Message

GRACE_S = 3.0
"""How long the others may take to end by themselves after the first failure: time to say what they saw."""
LOOK_EVERY_S = 0.1
STORE_TIMEOUT_S = 60.0


class Listener(Protocol):
    """Whoever wants to know what workers tell, and knows what a user can do after a failure."""

    def heard(self, rank: int, message: Message) -> None:
        """A worker has told something, other than a failure."""
        ...

    def printed(self, rank: int, output: bytes) -> None:
        """All is over, and this is what a worker has printed."""
        ...

    def advice(self) -> Sequence[str]:
        """Further lines for the hint of a failure."""
        ...


@dataclass
class Crew:
    """All workers of one task, and what has been heard of them."""

    task: Task
    listener: Listener
    members: list[Member] = field(default_factory=list["Member"])
    first_failure: Member | None = None
    failed_at: float = 0.0
    signals: list[int] = field(default_factory=list[int])
    """The signals that the launcher got: the first is passed on, after the second nobody waits."""

    def take_signal(self, number: int, frame: FrameType | None = None) -> None:
        """Note a signal, and pass the first one on. Raises nothing, so that it disturbs no clean-up."""
        self.signals.append(number)
        if len(self.signals) == 1:
            for member in self.members:
                member.send(number)

    def pause(self, number: int, frame: FrameType | None = None) -> None:
        """Stop, with all workers, until somebody continues us; they would soon have to wait for us anyway."""
        for member in self.members:
            member.send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for member in self.members:
            member.send(signal.SIGCONT)


def run(task: Task, listener: Listener) -> None:
    """Carry a task out with one process per worker. The first failure is raised.

    The first Ctrl-C (or SIGTERM) is for the workers to obey; after a second one they are ended, and it is raised.
    """
    crew = Crew(task, listener)
    server = listen("127.0.0.1", 0)
    port = server.getsockname()[1]
    store = serve(server, STORE_TIMEOUT_S)
    try:
        with _signals_to(crew), guard() as warden:
            try:
                for rank in range(task.workers):
                    crew.members.append(start(task, rank, port))
                    warden.take(crew.members[-1].process.pid)
                    if crew.signals:  # it came while this one was being started
                        crew.members[-1].send(crew.signals[0])
                _watch(crew)
            finally:
                _end_all(crew)
        for member in crew.members:
            listener.printed(member.rank, member.output())
        if len(crew.signals) > 1:
            raise KeyboardInterrupt
        if crew.first_failure:
            raise _error_of(crew, crew.first_failure)
    finally:
        for member in crew.members:
            if member.log is not None:
                member.log.close()
        del store


@contextlib.contextmanager
def _signals_to(crew: Crew) -> Generator[None]:
    """Ctrl-C, SIGTERM and Ctrl-Z go to the crew meanwhile. Only the main thread can have that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signal.SIGINT: crew.take_signal, signal.SIGTERM: crew.take_signal, signal.SIGTSTP: crew.pause}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _watch(crew: Crew) -> None:
    """Listen to all workers until each has ended; after the first failure the others have GRACE_S."""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as descriptors:
        for member in crew.members:
            selector.register(member.pipe, selectors.EVENT_READ)
            with contextlib.suppress(AttributeError, OSError):  # without one the end is seen at the next look
                end = os.pidfd_open(member.process.pid)
                descriptors.callback(os.close, end)
                selector.register(end, selectors.EVENT_READ)
        while not all(member.over for member in crew.members):
            for key, _ in selector.select(timeout=LOOK_EVERY_S):
                if _is_spent(crew, key.fd):
                    selector.unregister(key.fd)
            for member in crew.members:
                if not member.over:
                    _look(crew, member)
            if len(crew.signals) > 1 or (crew.failed_at and time.monotonic() - crew.failed_at > GRACE_S):
                return


def _is_spent(crew: Crew, descriptor: int) -> bool:
    """Whether a descriptor has told all it can: a process that has ended, a pipe that is closed."""
    member = next((each for each in crew.members if each.pipe == descriptor), None)
    return member is None or not _listen(crew, member)


def _look(crew: Crew, member: Member) -> None:
    """Note the end of a worker, and judge it by what it said and left behind.

    Its process is asked, not its pipe: a child that the worker has forked may hold the pipe open for ever.
    """
    if member.process.poll() is None:
        return
    _listen(crew, member)  # what it said last may still lie in the pipe
    member.over = True
    if not member.finished and member.failure is None:
        _note_failure(crew, member)


def _listen(crew: Crew, member: Member) -> bool:
    """Take what a worker has said; False when no more can come."""
    while True:
        try:
            data = os.read(member.pipe, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, member.unread = (member.unread + data).split(b"\n")
        for line in lines:
            message: Message = json.loads(line)
            if message["kind"] == "failed":
                member.failure = Failure(**message["failure"])
                _note_failure(crew, member)
            else:
                member.finished |= message["kind"] == "finished"
                crew.listener.heard(member.rank, message)


def _note_failure(crew: Crew, member: Member) -> None:
    """Remember the first failure. What others suffered from it is told only if nothing better is known."""
    first = crew.first_failure
    if first is None:
        crew.failed_at = time.monotonic()
    if first is None or (_is_consequence(first) and not _is_consequence(member)):
        crew.first_failure = member


def _is_consequence(member: Member) -> bool:
    return member.failure is not None and member.failure.blames is not None


def _end_all(crew: Crew) -> None:
    """End whoever is left, with all that workers have started; nobody is waited for before all have been told."""
    for member in crew.members:
        member.send(signal.SIGKILL)  # also a stopped one obeys this
    for member in crew.members:
        member.process.wait()
        member.send(signal.SIGKILL)  # what it forked between the first signal and its end
        os.close(member.pipe)


def _error_of(crew: Crew, member: Member) -> WorkerError:
    """The first failure as one error: which rank, what, where, and what to do."""
    size, failure, code = crew.task.workers, member.failure, member.process.returncode
    advice = crew.listener.advice()
    if crew.signals and (code == -crew.signals[0] or (failure and failure.name == "KeyboardInterrupt")):
        name = signal.Signals(crew.signals[0]).name
        return WorkerError(f"stopped by {name}", "\n".join(advice), 128 + crew.signals[0])
    if failure is None:
        return told_by_its_end(member.rank, size, code, member.output().decode(errors="replace"), advice)
    return told_by_worker(member.rank, size, failure, advice)
