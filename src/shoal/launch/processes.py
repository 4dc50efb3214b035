"""Workers as processes of this machine: started, watched, and all ended when one fails.

The launcher holds the store where workers meet, on loopback and on a port that the system chose, so that no death of
a worker takes it away. Workers run in sessions of their own: Ctrl-C reaches the launcher alone, which passes it on
once, and ending a worker ends whatever it started. A worker dies with its launcher (`member.die_with_parent`).
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any

from shoal.comm.store import listen, serve
from shoal.config.schema import RunConfig
from shoal.config.write import to_toml
from shoal.errors import WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.messages import pass_on
from shoal.train.observer import Observer
from shoal.train.result import Result

GRACE_S = 3.0
"""How long the others may take to end by themselves after the first failure: time to say what they saw."""
STORE_TIMEOUT_S = 60.0


@dataclass
class Member:
    """One worker process, as the launcher sees it."""

    rank: int
    process: subprocess.Popen[bytes]
    pipe: int
    log: IO[bytes]
    heard: bytes = b""
    failure: dict[str, Any] | None = None
    result: Result | None = None
    over: bool = False

    def end(self, number: int) -> None:
        """A signal to the worker and to whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass
class Launch:
    """All workers of one run, and what has been heard of them."""

    config: RunConfig
    observer: Observer
    members: list[Member] = field(default_factory=list["Member"])
    first_failure: Member | None = None
    failed_at: float = 0.0


def launch(config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
    """Train with one process per worker; the result is rank 0's, and the first failure is raised."""
    run = Launch(config, observer)
    server = listen("127.0.0.1", 0)
    port = server.getsockname()[1]
    store = serve(server, STORE_TIMEOUT_S)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def pass_signal_on(number: int, frame: FrameType | None) -> None:
        for member in run.members:
            member.end(number)

    try:
        for number in before:
            signal.signal(number, pass_signal_on)
        for rank in range(config.launch.workers):
            run.members.append(_start(config, rank, port, resumed))
        _watch(run)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _end_all(run)
        del store
    if run.first_failure:
        raise _error_of(run)
    result = run.members[0].result
    assert result is not None
    return result


def _start(config: RunConfig, rank: int, port: int, resumed: RunFolder | None) -> Member:
    read_end, write_end = os.pipe()
    workers = config.launch.workers
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # torch's word for: the launcher holds the store
    }
    # Workers share the cores; more threads than cores would only get in each other's way.
    environment.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers)))
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the member is forgotten
    resumed_path = str(resumed.path) if resumed else ""
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.launch.member", str(os.getpid()), str(write_end), resumed_path],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment,
        pass_fds=[write_end],
        start_new_session=True,
    )
    os.close(write_end)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as settings:
        settings.write(to_toml(config).encode())
    return Member(rank, process, read_end, log)


def _watch(run: Launch) -> None:
    """Listen to all workers until each has ended; after the first failure the others have GRACE_S."""
    with selectors.DefaultSelector() as selector:
        for member in run.members:
            selector.register(member.pipe, selectors.EVENT_READ, member)
        while selector.get_map():
            for key, _ in selector.select(timeout=0.1):
                member: Member = key.data
                if not _listen(run, member):
                    selector.unregister(member.pipe)
            if run.first_failure and time.monotonic() - run.failed_at > GRACE_S:
                return


def _listen(run: Launch, member: Member) -> bool:
    """Take what a worker has said; False when it has hung up, which it does by ending."""
    data = os.read(member.pipe, 1 << 16)
    *lines, member.heard = (member.heard + data).split(b"\n")
    for line in lines:
        message = json.loads(line)
        if message["kind"] == "failed":
            member.failure = message
            _note_failure(run, member)
        elif member.rank == 0 and message["kind"] == "finished":
            member.result = Result(**message["result"])
        elif member.rank == 0:
            pass_on(message, run.config, run.observer)
    if data:
        return True
    # It has closed its pipe, or died with it: what it left behind says which.
    if member.process.wait() != 0 and member.failure is None:
        _note_failure(run, member)
    return False


def _note_failure(run: Launch, member: Member) -> None:
    """Remember the first failure. What others suffered from it is told only if nothing better is known."""
    first = run.first_failure
    if first is None:
        run.failed_at = time.monotonic()
    if first is None or (_is_consequence(first) and not _is_consequence(member)):
        run.first_failure = member


def _is_consequence(member: Member) -> bool:
    return member.failure is not None and member.failure["consequence"]


def _end_all(run: Launch) -> None:
    for member in run.members:
        if member.process.poll() is None:
            member.end(signal.SIGKILL)  # also a stopped one obeys this
        member.process.wait()
        member.end(signal.SIGKILL)  # what it started may have outlived it
        os.close(member.pipe)


def _error_of(run: Launch) -> WorkerError:
    """The first failure as one error: which rank, what, where, and what to do."""
    member = run.first_failure
    assert member is not None
    who = f"rank {member.rank} of {run.config.launch.workers}"
    failure = member.failure
    if failure is None:
        member.log.seek(0)
        said = member.log.read().decode(errors="replace").strip()
        code = member.process.returncode
        if code < 0:
            return WorkerError(f"{who} was killed by {signal.Signals(-code).name}", said[-2000:], 128 - code)
        return WorkerError(f"{who} ended with exit code {code}", said[-2000:], code)
    if failure["expected"]:
        return WorkerError(f"{who}: {failure['message']}", failure["hint"], exit_code=2)
    what = f"{failure['name']}: {failure['message']}"
    return WorkerError(f"{who} failed at {failure['where']}: {what}", "", 1, traceback=failure["traceback"])
