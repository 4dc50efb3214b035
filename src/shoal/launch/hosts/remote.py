"""The launcher's side of workers on several machines: it talks to the agent of each (`agent.py`).

Every worker has a handle here, as if it were a process of this machine, so `supervise` treats all alike. The secret of
the run goes to the agents through their standard input. When this process ends, whatever the reason, that input ends,
and the agents end their workers.
"""

import base64
import binascii
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, final

from shoal import __version__
from shoal.comm.rendezvous.secret import new_secret
from shoal.errors import ConfigError, JoinError
from shoal.launch.handles import WorkerHandle, end_all
from shoal.launch.process.processes import ProcessTask
from shoal.launch.reports import Report
from shoal.launch.supervise import Listener, Policy, SignalRelay, supervise
from shoal.printable import excerpt, printable

AGENT = "shoal.launch.hosts.agent"
"""The module that each machine runs."""
GREETING_S = 60.0
"""How long a machine may take until its agent is there, and then to load torch."""
END_S = 5.0
LAST_LINES = 12
Message = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """A machine that runs workers."""

    name: str
    workers: int
    connect: Callable[[], "subprocess.Popen[bytes]"]
    """Starts its agent, with pipes for the three standard streams."""


@dataclass(frozen=True)
class Job:
    """The settings of a launch that all machines share."""

    task: ProcessTask
    environment: Mapping[str, str]
    """Variables that the workers get besides those of their machine."""
    host: str = ""
    """The address of the first machine, for the others; empty: found from the connections."""


@final
class RemoteHandle(WorkerHandle):
    """A worker on another machine. A thread of its machine's agent fills its pipe."""

    def __init__(self, rank: int, agent: "Agent") -> None:
        read_end, self._write_end = os.pipe()
        super().__init__(rank, read_end)
        self._agent, self._code, self._ended = agent, None, threading.Event()
        self.printed = bytearray()

    def take(self, report: Report) -> None:
        """A report has come."""
        data = memoryview(json.dumps(report).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # the supervisor has closed its end
            while data:
                data = data[os.write(self._write_end, data) :]

    def ended(self, code: int) -> None:
        """The worker, or the connection to it, has ended."""
        if not self._ended.is_set():
            self._code = code
            self._ended.set()
            os.close(self._write_end)

    def poll(self) -> int | None:
        """The exit code, below 0 for a signal."""
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal to the worker and to all that it started there."""
        self._agent.tell(rank=self.rank, signal=number)

    def kill(self) -> None:
        """Kill the worker and all that it started there."""
        self.send_signal(signal.SIGKILL)

    def name(self) -> str:
        """Its rank and its machine."""
        return f"rank {self.rank} on {self._agent.name}"

    def close(self, wait_s: float) -> bool:
        """Wait for its end and take its output."""
        self._ended.wait(wait_s)
        self.output = bytes(self.printed)
        return super().close(wait_s)


@final
class Agent:
    """The connection to the agent of one machine."""

    def __init__(self, machine: Machine, first: int, events: "queue.Queue[tuple[Agent, Message]]") -> None:
        self.name, self.here, self.first = machine.name, machine.workers, first
        self.connection: list[str] = []
        """The launcher's and the machine's own address and port, as the machine sees the connection."""
        self._process, self._events = machine.connect(), events
        self._handles: dict[int, RemoteHandle] = {}
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._keeps_output = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def listen(self) -> None:
        """Read what comes, in threads; call it after the last fork of this process."""
        for work in (self._take_errors, self._take_messages):
            self._threads.append(threading.Thread(target=work, name=f"shoal hears {self.name}", daemon=True))
            self._threads[-1].start()

    def handles(self, keeps_output: bool) -> list[RemoteHandle]:
        """Of the workers there, before they start."""
        self._keeps_output = keeps_output
        self._handles = {rank: RemoteHandle(rank, self) for rank in range(self.first, self.first + self.here)}
        return list(self._handles.values())

    def tell(self, **message: Any) -> None:
        """Send a message; a connection that is gone shows in another way."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def last_lines(self) -> str:
        """What the connection or the agent printed last."""
        return "\n".join(self._said)

    def _take_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._say(line)

    def _say(self, line: bytes) -> None:
        """A line that no worker has printed: of ssh, of a shell, of the agent."""
        self._said.append(excerpt(line.decode(errors="replace").rstrip()))
        _print(2, f"[{self.name}] ", line)

    def _take_messages(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message: Message = json.loads(line)
                self._take(message)
            except (ValueError, KeyError, TypeError, binascii.Error):  # a shell's greeting
                self._say(line)
        code = self._process.wait()
        self._threads[0].join(END_S)  # its last lines
        for handle in self._handles.values():
            handle.ended(code if code > 0 else -signal.SIGKILL)
        self._events.put((self, {"kind": "gone", "code": code}))

    def _take(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "printed":
            rank, text = message["rank"], base64.b64decode(message["text"], validate=True)
            if self._keeps_output:
                self._handles[rank].printed += text
            else:
                _print(message["stream"], f"[{self.name} rank {rank}] ", text)
        elif kind == "report":
            report, handle = message["report"], self._handles[message["rank"]]
            if report["kind"] == "failed":
                failure = report["failure"]
                where = f"Rank {handle.rank} ran on {printable(self.name)}."
                failure["hint"] = "\n".join(filter(None, [failure["hint"], where]))
                failure["where"] += f" on {printable(self.name)}"
            handle.take(report)
        elif kind == "ended":
            self._handles[message["rank"]].ended(message["code"])
        else:
            if kind == "here":
                self.connection = message["connection"].split()
            self._events.put((self, message))

    def close(self) -> None:
        """End the connection: the agent ends its workers."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            thread.join(END_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None and not any(thread.is_alive() for thread in self._threads):
                stream.close()


_printing = threading.Lock()


def _print(stream: int, prefix: str, text: bytes) -> None:
    """Print whole lines, each with the prefix."""
    target: IO[str] = sys.stdout if stream == 1 else sys.stderr
    lines = text.decode(errors="replace").splitlines(keepends=True)
    with _printing, contextlib.suppress(OSError, ValueError):
        target.write(
            "".join(f"{prefix}{line}" if line.endswith("\n") else f"{prefix}{line}\n" for line in lines)
        )
        target.flush()


def run(
    job: Job, machines: Sequence[Machine], listener: Listener | None = None, policy: Policy | None = None
) -> None:
    """Run a task on these machines, with ranks in their order; raise the first failure."""
    workers = sum(machine.workers for machine in machines)
    events: queue.Queue[tuple[Agent, Message]] = queue.Queue()
    with SignalRelay() as signals, contextlib.ExitStack() as opened:
        agents: list[Agent] = []
        for machine in machines:
            agents.append(Agent(machine, sum(each.here for each in agents), events))
            opened.callback(agents[-1].close)
        for agent in agents:
            agent.listen()
        for agent, message in _answers(agents, events, "here", signals):
            _check_version(agent, message)
        host = job.host or meeting_address([(agent.name, agent.connection) for agent in agents])
        secret = new_secret().hex()
        handles = [handle for agent in agents for handle in agent.handles(job.task.keeps_output)]
        for agent in agents:
            agent.tell(
                task=job.task.settings,
                threads=job.task.threads,
                environment=dict(job.environment),
                first=agent.first,
                here=agent.here,
                workers=workers,
                holds_store=agent is agents[0],
                host=host,
                secret=secret,
            )
        try:
            for _, message in _answers(agents[:1], events, "listens", signals):
                for agent in agents:
                    agent.tell(port=message["port"])
        except BaseException:
            for agent in agents:
                agent.close()
            end_all(handles)
            raise
        supervise(handles, policy or Policy(), _Placed(listener or Listener(), agents), signals)


def _answers(
    agents: Sequence[Agent],
    events: "queue.Queue[tuple[Agent, Message]]",
    kind: str,
    signals: SignalRelay,
) -> Generator[tuple[Agent, Message]]:
    """The answer of each of these agents, in the order in which they come."""
    waiting, deadline = list(agents), time.monotonic() + GREETING_S
    while waiting:
        if signals.received:
            raise KeyboardInterrupt(signal.Signals(signals.received[0]).name)
        if time.monotonic() > deadline:
            names = ", ".join(agent.name for agent in waiting)
            raise JoinError(
                f"no answer from {names} within {GREETING_S:g} s", "Try `ssh HOST true` for each."
            )
        try:
            agent, message = events.get(timeout=0.1)
        except queue.Empty:
            continue
        if message["kind"] == "refused":
            raise JoinError(
                f"{agent.name}: {message['text']}", "Name its address for the others: --master HOST"
            )
        if message["kind"] == "gone":
            raise JoinError(
                f"cannot start workers on {agent.name}: the connection ended with code {message['code']}",
                agent.last_lines() or "Try `ssh HOST true`.",
            )
        if message["kind"] == kind and agent in waiting:
            waiting.remove(agent)
            yield agent, message


def _check_version(agent: Agent, message: Message) -> None:
    if message["shoal"] != __version__:
        raise ConfigError(
            f"{agent.name} has shoal {printable(str(message['shoal']))}, this machine {__version__}",
            "Install the same version on all machines, or name another Python there: --python PATH",
        )


def meeting_address(connections: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The address of the first machine that all others reach, from what ssh says of the connection to each.

    That is (name, [the launcher's address, port, the machine's address, port]).

    >>> of_b = ("b", ["10.0.0.9", "40001", "10.0.0.2", "22"])
    >>> meeting_address([("a", ["10.0.0.9", "40000", "10.0.0.1", "22"]), of_b])
    '10.0.0.1'
    >>> meeting_address([("localhost", ["::1", "40000", "::1", "22"]), of_b])
    '10.0.0.9'
    """
    first, (_, connection) = connections[0][0], connections[0]
    if len(connection) != 4:
        return first
    if not _is_local(connection[2]):
        return connection[2]
    # It is this machine: the others see the launcher's address.
    seen = [each[0] for _, each in connections if len(each) == 4 and not _is_local(each[0])]
    return seen[0] if seen else connection[2]


def _is_local(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


@final
class _Placed(Listener):
    """A listener that also says on which machine a worker ran."""

    def __init__(self, listener: Listener, agents: Sequence[Agent]) -> None:
        self._listener, self._agents = listener, agents
        self.heard, self.printed, self.advice = listener.heard, listener.printed, listener.advice
        self.goes_on_without = listener.goes_on_without

    def role_of(self, rank: int, code: int) -> Sequence[str]:
        """The machine, and the last lines of its connection."""
        agent = next(each for each in self._agents if each.first <= rank < each.first + each.here)
        said = agent.last_lines()
        lines = [f"Rank {rank} ran on {printable(agent.name)}.", *([said] if said else [])]
        return [*lines, *self._listener.role_of(rank, code)]
