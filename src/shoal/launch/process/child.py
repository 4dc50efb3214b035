"""A child process that runs another program, in a session of its own.

`subprocess` waits until the child has loaded its program, and no signal ends that wait: a child that is stopped before
would stop its parent, too. Here the parent goes on at once, and sees the stop as any other.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: 0


def on_death_of_parent(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends. Only on Linux."""
    _prctl(_PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends. Linux only; elsewhere a no-op."""
    on_death_of_parent(signal.SIGKILL)
    if sys.platform == "linux" and os.getppid() != parent:  # it had already ended
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show; at most 15 characters. Only on Linux."""
    _prctl(_PR_SET_NAME, name.encode())


def exit_at_once(code: int) -> NoReturn:
    """Run the exit functions, write the buffers of open files, and exit without Python's last phase.

    That phase deletes every object, which takes 0.2 s once torch is loaded, and more in a copy of a process, where it
    writes to pages that the copies share. Also, a thread whose native call returns in that phase aborts the process.
    """
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    open_files = [each for each in gc.get_objects() if issubclass(type(each), _WITH_BUFFER)]
    for stream in (sys.stdout, sys.stderr, *open_files):
        with contextlib.suppress(Exception):  # whatever the user's own streams raise
            stream.flush()
    os._exit(code)


_WITH_BUFFER = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def forget_parent() -> None:
    """In a copy of a process: leave the parent's exit functions and open files to the parent."""
    atexit._clear()  # pyright: ignore[reportPrivateUsage]
    gc.freeze()  # `exit_at_once` does not see them, and no garbage collection writes to their pages


class ChildProcess:
    """A child of this process, as `subprocess.Popen` would show it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, below 0 for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._ended()
        return self.returncode

    def _ended(self) -> int | None:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # this program ignores SIGCHLD: the code is lost
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> int | None:
        """A new descriptor that becomes readable when it ends; None where the system has none."""
        with contextlib.suppress(AttributeError, OSError):
            return os.pidfd_open(self.pid)
        return None

    def wait(self, timeout: float) -> int | None:
        """Wait at most that long for its end."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.returncode


def start_program(
    command: Sequence[str],
    streams: Mapping[int, int],
    environment: Mapping[str, str] | None = None,
    keeps: Collection[int] = (),
    parents_death: int = signal.SIGKILL,
) -> ChildProcess:
    """Start a program; returns at once. It is sent the signal `parents_death` when its parent dies.

    `streams` are descriptors for its standard streams, by number, and `keeps` those that it inherits besides. It starts
    with SIGINT blocked, because Python would print a traceback while it starts.
    """
    stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # our handlers must not run in the child
    try:
        pid = os.fork()
        if pid == 0:
            _run(command, streams, os.environ if environment is None else environment, keeps, parents_death)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ChildProcess(pid)


def _run(
    command: Sequence[str],
    streams: Mapping[int, int],
    environment: Mapping[str, str],
    keeps: Collection[int],
    parents_death: int,
) -> None:
    """Become the program. Nothing of the parent's may run in the child, whatever happens."""
    try:
        os.setsid()
        on_death_of_parent(parents_death)
        # Copied first: a descriptor may have the number of a standard stream that was closed.
        copies = {number: fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for number, each in streams.items()}
        for number, each in copies.items():
            os.dup2(each, number)
        close_all_but(keeps)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})
        os.execve(command[0], list(command), dict(environment))
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def close_all_but(keeps: Collection[int]) -> None:
    """Close all descriptors but the standard streams and these, which programs that this one becomes inherit."""
    last = 2
    for each in sorted(keeps):
        os.set_inheritable(each, True)
        os.closerange(last + 1, each)
        last = each
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
