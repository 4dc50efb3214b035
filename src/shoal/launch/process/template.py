"""Workers as copies of one process that has loaded torch and computed nothing: their *template*.

To load torch takes each worker seconds of computing; to fork takes milliseconds. The template is a new interpreter, so
its copies have nothing of this program: no module of the user's, no thread, no use of a GPU. It has the workers'
environment from its start, because some libraries read theirs when they are loaded.

The parent of a worker is then the template, which tells the launcher how the worker ended. A template dies with its
launcher, and the copies die with their template. Tasks and secrets pass through it unread, as descriptors.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import final

from shoal.launch.process.child import ChildProcess, close_all_but, die_with_parent, start_program

LOAD_S = 60.0
"""How long a template may take to load, and a copy to be made, before workers are started without one."""
END_S = 5.0
"""How long it may take to end once it was killed."""
MOST_KEPT, MOST_DESCRIPTORS = 2, 16
PRELOADED = (
    "torch.distributed",
    "shoal.launch.process.worker_tasks",
    "shoal.comm.over_torch.group",
    "shoal.comm.shared_memory.group",
)
READ_BY_NOBODY = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST"})
"""Variables that no library reads when it is loaded: workers may have other values than their template."""
_NUMBER = struct.Struct("=i")
_kept: dict[object, "Template"] | None = None


@contextlib.contextmanager
def template_for(
    interpreter: Sequence[str], environment: Mapping[str, str], workers: int
) -> Generator["Template | None"]:
    """A template for workers with this environment; None where they are to be new interpreters.

    Inside `keeping_templates` it is kept for later runs. Only there is it worth its start for a single worker.
    """
    if not hasattr(os, "pidfd_open") or (_kept is None and workers == 1):
        yield None
        return
    fixed = {name: value for name, value in environment.items() if name not in READ_BY_NOBODY}
    # The kernel ends a template with the thread that has started it.
    key = os.getpid(), threading.get_native_id(), json.dumps(fixed, sort_keys=True)
    template = (_kept or {}).pop(key, None)
    if template is not None and not template.is_loaded():
        template.close()
        template = None
    template = template or Template(interpreter, fixed)
    try:
        yield template if template.is_loaded() else None
    finally:
        if _kept is None:
            template.close()
        else:
            _kept[key] = template
            while len(_kept) > MOST_KEPT:
                _kept.pop(next(iter(_kept))).close()


@contextlib.contextmanager
def keeping_templates() -> Generator[None]:
    """Within this context, templates serve one run after the other."""
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


@final
class Template:
    """The launcher's side."""

    def __init__(self, interpreter: Sequence[str], environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [*interpreter, __name__, str(os.getpid())]
            self._process = start_program(command, {0: theirs.fileno()}, environment)

    def is_loaded(self) -> bool:
        """Wait until it can make copies; False if it never will."""
        return self._ask(b"?") is not None

    def start(self, streams: Sequence[int], keeps: Sequence[int]) -> ChildProcess | None:
        """Make a copy that works on the task in its standard input; None if that fails.

        `streams` are its three standard streams. It inherits `keeps`, and learns their numbers (`worker_main.work`).
        """
        here = os.open(".", os.O_PATH)
        status, told = os.pipe()
        try:
            pid = self._ask(b"+", told, here, *streams, *keeps)
        finally:
            os.close(here)
            os.close(told)
        if pid is None:
            os.close(status)
            return None
        return _Copy(pid, status, self._process.pid)

    def _ask(self, message: bytes, *descriptors: int) -> int | None:
        """Its answer; None if it is gone."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [message], descriptors)
            deadline = time.monotonic() + LOAD_S
            while time.monotonic() < deadline:
                if select.select([self._channel], [], [], 0.1)[0]:
                    answer = self._channel.recv(_NUMBER.size)
                    return _NUMBER.unpack(answer)[0] if answer else None
                os.kill(self._process.pid, signal.SIGCONT)  # if it is stopped
        return None

    def close(self) -> None:
        """End it. Copies that are left are killed."""
        self._channel.close()
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)


@final
class _Copy(ChildProcess):
    """A worker whose parent is a template; `status` is a pipe through which that tells the exit code."""

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
    """The other side: make copies, and tell how they ended. Returns in every copy, when its work is done."""
    die_with_parent(int(sys.argv[-1]))
    # It ends with its launcher. Whoever asks a whole group of processes to stop asks the workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    os.close(os.pidfd_open(os.getpid()))  # where the system refuses it, there are no templates
    for module in PRELOADED:
        import_module(module)
    # A copy that looks for garbage would otherwise copy all pages. What is garbage already stays: workers would use its
    # place, and need less memory than new interpreters.
    gc.freeze()
    channel, copies = socket.socket(fileno=os.dup(0)), dict[int, tuple[int, int]]()
    while True:
        for ready in select.select([channel, *copies], [], [])[0]:
            if isinstance(ready, int):
                pid, status = copies.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # nobody asks for it any more
                    os.write(status, _NUMBER.pack(code))
                os.close(status)
                os.close(ready)
                continue
            message, descriptors, *_ = socket.recv_fds(channel, 1, MOST_DESCRIPTORS)
            if not message:
                os._exit(0)
            if not descriptors:
                channel.send(_NUMBER.pack(0))
                continue
            status, here, stdin, stdout, stderr, *keeps = descriptors
            template = os.getpid()
            pid = os.fork()
            if pid == 0:
                channel.detach()
                return _work(template, here, (stdin, stdout, stderr), keeps)
            for each in (here, stdin, stdout, stderr, *keeps):
                os.close(each)
            copies[os.pidfd_open(pid)] = pid, status
            channel.send(_NUMBER.pack(pid))


def _work(template: int, here: int, streams: Sequence[int], keeps: Sequence[int]) -> int:
    """Become a worker, as a new interpreter would be it."""
    from shoal.launch.process.worker_main import work

    os.setsid()
    die_with_parent(template)
    os.fchdir(here)
    for number, each in enumerate(streams):
        os.dup2(each, number)
    close_all_but(keeps)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})
    task = json.loads(sys.stdin.read())
    sys.path[:] = task["import_path"]
    for name in os.environ.keys() - task["environment"].keys():
        del os.environ[name]
    os.environ.update(task["environment"])
    # As new interpreters, copies that nobody seeds draw different numbers.
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    return work(task, *keeps)
