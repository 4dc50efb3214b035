"""Workers as copies of one process that has loaded torch and computed nothing: their *template*.

Loading torch takes each worker seconds; a fork takes milliseconds. The template is a new interpreter, so its copies
share nothing with the launcher: no module of the user's, no thread, no use of a GPU. It starts with the workers'
environment, because some libraries read variables when they are loaded.

The launcher asks the template for copies through a socket. It passes the standard streams, the working directory and
the pipes of each worker as descriptors; the template reads none of them. The parent of a worker is the template, so the
template reports how the worker ended. A template dies with its launcher, and copies die with their template.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Protocol, final

from shoal.launch.process.child import (
    ChildProcess,
    close_all_but,
    die_with_parent,
    exit_at_once,
    forget_parent,
    start_program,
)

LOAD_S = 60.0
"""How long a template may take to load, or to make a copy. After it the template is killed, and its copies with it;
workers that have not started yet are new interpreters."""
END_S = 5.0
"""How long a killed template may take to end."""
MOST_KEPT = 2
MOST_DESCRIPTORS = 16
"""The most that one request may carry."""
PRELOADED = (
    "shoal.launch.process.worker_tasks",
    "shoal.comm.over_torch.group",
    "shoal.comm.shared_memory.group",
    "shoal.strategies.ddp.ddp",
    "shoal.strategies.local.local",
    "shoal.strategies.onecopy.onecopy",
    "shoal.strategies.pipeline.pipeline",
    "shoal.strategies.rpc.rpc",
    "shoal.strategies.server.server",
    "shoal.strategies.tensor.plan",
    "shoal.strategies.zero.zero",
    "shoal.training.memory.checkpointing",
    "shoal.training.memory.offloading",
)
"""Whatever the runs of a template choose: loaded once, and in no run's memory."""
READ_BY_NOBODY = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST"})
"""Variables that no library reads while it is loaded: workers may have other values than their template."""
_NUMBER = struct.Struct("=i")
_LOADED, _NO_COPY = 0, -1
"""Answers that are no process number."""
_kept: dict[object, "Template"] | None = None


@contextlib.contextmanager
def template_for(
    interpreter: Sequence[str], environment: Mapping[str, str], workers: int
) -> Generator["Template | None"]:
    """A template for workers with this environment; None if they have to be new interpreters.

    Inside `keeping_templates`, later runs use it again. A single worker gets a template only there: one run would not
    be worth its start.
    """
    if not hasattr(os, "pidfd_open") or (_kept is None and workers == 1):
        yield None
        return
    fixed = {name: value for name, value in environment.items() if name not in READ_BY_NOBODY}
    # The kernel kills a template when the thread that started it ends.
    key = os.getpid(), threading.get_native_id(), json.dumps(fixed, sort_keys=True)
    template = (_kept or {}).pop(key, None)
    try:
        if template is None or not template.is_loaded():
            template = Template(interpreter, fixed)
        yield template if template.is_loaded() else None
    finally:
        if template is not None and _kept is not None and not template.is_closed:
            _kept[key] = template
            while len(_kept) > MOST_KEPT:
                _kept.pop(next(iter(_kept))).close()
        elif template is not None:
            template.close()


@contextlib.contextmanager
def keeping_templates() -> Generator[None]:
    """Within this context, templates serve one run after another."""
    global _kept
    if _kept is not None:
        yield
        return
    _kept = {}
    try:
        yield
    finally:
        for template in _kept.values():
            template.close()
        _kept = None


@contextlib.contextmanager
def loading() -> Generator[None]:
    """Load modules without garbage collection, which would look at all of torch's objects several times.

    No later collection looks at what is there at the end: in a copy of this process it would write to every page, and
    so copy it. Garbage that exists then stays: workers would reuse its memory, and seem to need less than new
    interpreters.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class MakesCopies(Protocol):
    """Makes workers that are copies of a process."""

    def start(self, streams: Sequence[int], keeps: Sequence[int]) -> ChildProcess | None:
        """Make a copy that works on the task in its standard input; None if that is not possible.

        `streams` are the copy's three standard streams. It inherits `keeps`: their numbers are the further arguments of
        its `worker_main.work`.
        """
        ...


@final
class OwnTemplate:
    """This process as the template, for the agent of one machine: it has one thread and has computed nothing."""

    def start(self, streams: Sequence[int], keeps: Sequence[int]) -> ChildProcess:
        """Fork. The copy ends as a new interpreter would: after its threads, with its exit functions."""
        parent, here = os.getpid(), os.open(".", os.O_PATH)
        stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        try:
            pid, code = os.fork(), 1
            if pid == 0:
                try:
                    forget_parent()
                    code = _work(parent, here, streams, keeps)
                    for thread in threading.enumerate():
                        if not thread.daemon and thread is not threading.current_thread():
                            thread.join()
                finally:
                    exit_at_once(code)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(here)
        return ChildProcess(pid)


@final
class Template:
    """The launcher's side of a template."""

    def __init__(self, interpreter: Sequence[str], environment: Mapping[str, str]) -> None:
        self.is_closed = False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(0.1)
        # It gets streams of its own, so that copies have them even if this program has closed its own. It has nothing
        # to say: if it cannot load, neither can a new interpreter, which says so.
        with theirs, open(os.devnull, "wb") as nowhere:
            streams = {0: theirs.fileno(), 1: nowhere.fileno(), 2: nowhere.fileno()}
            command = [*interpreter, __name__, str(os.getpid())]
            self._process = start_program(command, streams, environment)

    def is_loaded(self) -> bool:
        """Wait until the template can make copies; False if it never will."""
        return self._ask(b"?") == _LOADED

    def start(self, streams: Sequence[int], keeps: Sequence[int]) -> ChildProcess | None:
        """Ask the template for a copy."""
        with contextlib.ExitStack() as opened:
            here = os.open(".", os.O_PATH)
            opened.callback(os.close, here)
            status, told = os.pipe()
            opened.callback(os.close, told)
            pid = self._ask(b"+", told, here, *streams, *keeps)
        if pid is None or pid == _NO_COPY:
            os.close(status)
            return None
        return _Copy(pid, status, self._process.pid)

    def _ask(self, message: bytes, *descriptors: int) -> int | None:
        """Send a request and return the answer; None if there is none, and then the template is closed.

        A late answer would otherwise be taken for the answer to the next request.
        """
        if self.is_closed:
            return None
        answer = b""
        try:
            with contextlib.suppress(OSError):
                socket.send_fds(self._channel, [message], descriptors)
                deadline = time.monotonic() + LOAD_S
                while time.monotonic() < deadline:
                    try:
                        answer = self._channel.recv(_NUMBER.size)
                        break
                    except TimeoutError:
                        self._process.send_signal(signal.SIGCONT)  # if it is stopped
        finally:
            if not answer:
                self.close()
        return _NUMBER.unpack(answer)[0] if answer else None

    def close(self) -> None:
        """End the template; the kernel kills copies that are left."""
        self.is_closed = True
        self._channel.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(END_S)


@final
class _Copy(ChildProcess):
    """A worker whose parent is a template, which writes its exit code to the pipe `status`."""

    def __init__(self, pid: int, status: int, template: int) -> None:
        super().__init__(pid)
        os.set_blocking(status, False)
        self._status, self._template = status, template

    def _ended(self) -> int | None:
        try:
            code = os.read(self._status, _NUMBER.size)
        except BlockingIOError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._template, signal.SIGCONT)  # if it is stopped
            return None
        os.close(self._status)
        # Without a code the template is dead, and its copies with it.
        return _NUMBER.unpack(code)[0] if code else -signal.SIGKILL

    def end(self) -> int | None:
        return os.dup(self._status)


def main() -> int:
    """The program of a template: make copies, and report how they ended. In a copy it returns the exit code."""
    die_with_parent(int(sys.argv[-1]))
    # The template ends with its launcher. A stop signal to a whole group of processes is for the workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    # A launcher that ignores SIGCHLD would have the kernel reap copies before their exit codes are read.
    on_end_of_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # this system refuses it
        return 1
    with loading():
        for module in PRELOADED:
            import_module(module)
    if threading.active_count() > 1 or (
        "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()
    ):
        return 1  # a library has started a thread or used a GPU, and copies would have neither
    from multiprocessing.connection import wait  # a launcher need not load it

    channel, copies = socket.socket(fileno=os.dup(0)), dict[int, tuple[int, int]]()
    while True:
        for ready in wait([channel, *copies]):
            if isinstance(ready, int):
                pid, status = copies.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # the launcher no longer waits for it
                    os.write(status, _NUMBER.pack(code))
                os.close(status)
                os.close(ready)
                continue
            message, descriptors, *_ = socket.recv_fds(channel, 1, MOST_DESCRIPTORS)
            if not message:
                os._exit(0)
            if not descriptors:
                channel.send(_NUMBER.pack(_LOADED))
                continue
            status, here, stdin, stdout, stderr, *keeps = descriptors
            template = os.getpid()
            try:
                pid = os.fork()
            except OSError:  # no process is left; starting a new interpreter shows the reason
                pid = _NO_COPY
            if pid == 0:
                channel.detach()
                signal.signal(signal.SIGCHLD, on_end_of_child)
                return _work(template, here, (stdin, stdout, stderr), keeps)
            if pid != _NO_COPY:
                copies[os.pidfd_open(pid)] = pid, status
            for each in (here, stdin, stdout, stderr, *keeps, *([status] if pid == _NO_COPY else [])):
                os.close(each)
            channel.send(_NUMBER.pack(pid))


def _work(template: int, here: int, streams: Sequence[int], keeps: Sequence[int]) -> int:
    """Turn this copy into a worker with everything that a new interpreter would have, and do its task."""
    from shoal.launch.process.worker_main import draw_anew, work

    os.setsid()
    die_with_parent(template)
    os.fchdir(here)
    for number, each in enumerate(streams):
        os.dup2(each, number)
    close_all_but(keeps)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())
    # Blocked by the template. A signal that the launcher ignores stays ignored.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})
    task = json.loads(sys.stdin.read())
    sys.path[:] = task["import_path"]
    for name in os.environ.keys() - task["environment"].keys():
        del os.environ[name]
    os.environ.update(task["environment"])
    draw_anew()
    return work(task, *keeps)
