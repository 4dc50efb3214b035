"""The program that a launcher runs on each machine: it starts workers there, and tells the launcher what they do.

    python -P -m shoal.launch.hosts.agent

It talks in lines of JSON. From standard input it reads the job, with the secret of the run; the address of the store;
then signals for workers. To standard output it writes what workers report and print, and how they end. At the end of
input the launcher or the connection is gone, and the agent ends all its workers. One agent holds the store.
"""

import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, final

from shoal import __version__
from shoal.launch.cores import threads_per_worker
from shoal.launch.process.template import OwnTemplate, loading

if TYPE_CHECKING:
    from shoal.launch.process.processes import ProcessHandle

MOST_UNFINISHED = 1 << 16
"""Bytes of a line that are kept until its end comes."""
STORE_TIMEOUT_S = 60.0

Message = dict[str, Any]


class LauncherGoneError(Exception):
    """The launcher has closed the connection, or died."""


@final
class Channel:
    """The connection with the launcher: this process's standard streams, which workers do not inherit."""

    def __init__(self) -> None:
        self._input, self._output = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # whatever a library prints
        os.close(nothing)
        self._unread = b""

    def fileno(self) -> int:
        """Of the input."""
        return self._input

    def send(self, **message: Any) -> None:
        """Tell the launcher."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except BrokenPipeError:
            raise LauncherGoneError from None

    def receive(self) -> list[Message]:
        """The messages of one read, which waits if there is nothing."""
        data = os.read(self._input, MOST_UNFINISHED)
        if not data:
            raise LauncherGoneError
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def next(self) -> Message:
        """The next message, if the launcher sends no more before an answer."""
        while True:
            for message in self.receive():
                return message


@final
class Output:
    """One stream that a worker prints to."""

    def __init__(self, rank: int, number: int) -> None:
        self._rank, self._number = rank, number
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._unfinished, self.is_open = b"", True

    def fileno(self) -> int:
        """Of the end that is read."""
        return self._read_end

    def pass_on(self, channel: Channel, to_the_end: bool = False) -> None:
        """Send the lines that are there; with `to_the_end` also one that has no end."""
        while self.is_open:
            try:
                data = os.read(self._read_end, MOST_UNFINISHED)
            except BlockingIOError:
                break
            self.is_open = bool(data)
            self._unfinished += data
        lines, end, rest = self._unfinished.rpartition(b"\n")
        if to_the_end or not self.is_open or len(rest) > MOST_UNFINISHED:
            lines, end, rest = self._unfinished, b"", b""
        if lines or end:
            text = base64.b64encode(lines + end).decode()
            channel.send(kind="printed", rank=self._rank, stream=self._number, text=text)
        self._unfinished = rest

    def close(self) -> None:
        """Free it."""
        os.close(self._read_end)


def main() -> int:
    """Do one job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on this machine's terminal is the launcher's
    with contextlib.suppress(LauncherGoneError):
        channel = Channel()
        connection = os.environ.get("SSH_CONNECTION", "")
        channel.send(kind="here", shoal=__version__, connection=connection)
        _work(channel, channel.next())
    return 0


def _work(channel: Channel, job: Message) -> None:
    os.environ.update(job["environment"])
    added = job["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in added if entry]
    first, here = job["first"], job["here"]
    # Before torch is there, which reads it once.
    os.environ.setdefault("OMP_NUM_THREADS", str(job["threads"] or threads_per_worker(here)))
    with loading():
        from shoal.comm.rendezvous.store import listen, serve
        from shoal.errors import ShoalError
        from shoal.launch.handles import end_all, start
        from shoal.launch.process import processes, worker_tasks
        from shoal.launch.process.orphans import orphan_killer
    del worker_tasks  # for the workers, which are copies of this process
    task = processes.ProcessTask(job["task"], threads=job["threads"])
    environment = processes.environment_for(task, here)
    with orphan_killer() as orphans, contextlib.ExitStack() as opened:
        server = None
        if job["holds_store"]:
            try:
                server = opened.enter_context(listen(job["host"], 0))
            except ShoalError as error:
                channel.send(kind="refused", text=error.message)
                return
            channel.send(kind="listens", port=server.getsockname()[1])
        port = channel.next()["port"]
        launch = processes.Launch(
            job["workers"], port, orphans, bytes.fromhex(job["secret"]), "", job["host"], first, here
        )
        outputs = {rank: [Output(rank, number) for number in (1, 2)] for rank in range(first, first + here)}

        def begin(local: int) -> processes.ProcessHandle:
            streams = {number: each.write_end for number, each in enumerate(outputs[first + local], 1)}
            try:
                return processes.start_worker(
                    task, environment, OwnTemplate(), launch, first + local, streams
                )
            finally:
                for each in streams.values():
                    os.close(each)

        handles = start([begin] * here)
        try:
            # After the last fork: the store has a thread.
            store = serve(server, STORE_TIMEOUT_S) if server else None
            _relay(channel, handles, outputs, job["task"]["kind"])
            del store
        finally:
            end_all(handles)


def _relay(
    channel: Channel, handles: "list[ProcessHandle]", outputs: Mapping[int, list[Output]], kind: str
) -> None:
    """Pass on what comes, until all workers have ended and the launcher has closed the connection."""
    running = {handle.rank: handle for handle in handles}
    while True:
        streams = [each for rank in running for each in outputs[rank] if each.is_open]
        descriptors = [each for handle in running.values() for each in handle.descriptors()]
        ready = wait([channel.fileno(), *(each.fileno() for each in streams), *descriptors])
        if channel.fileno() in ready:
            for message in channel.receive():
                if message["rank"] in running:
                    running[message["rank"]].send_signal(message["signal"])
        for stream in streams:
            if stream.fileno() in ready:
                stream.pass_on(channel)
        for rank, handle in list(running.items()):
            code = handle.poll()  # before reading, so that the last report is in the pipe
            for report in handle.read():
                channel.send(kind="report", rank=rank, report=report)
            if code is None:
                continue
            for stream in outputs[rank]:
                stream.pass_on(channel, to_the_end=True)
                stream.close()
            if code == 0 and kind == "command":  # a command reports nothing itself
                channel.send(kind="report", rank=rank, report={"kind": "finished", "result": None})
            channel.send(kind="ended", rank=rank, code=code)
            del running[rank]


if __name__ == "__main__":
    sys.exit(main())
