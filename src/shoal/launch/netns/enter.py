"""Run a command inside the namespaces of a node. A bare Python process runs this file: it imports nothing of ours.

    python -I -S enter.py PID COMMAND [ARGUMENT …]

PID is the process that holds the node. A process number namespace takes in only children, so this process stays
outside: it passes signals on, ends as the command ends, and the command is killed if it is killed.
"""

import contextlib
import ctypes
import os
import signal
import sys

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(holder: int) -> None:
    """Join the namespaces of a process, and keep the working directory, under its name there."""
    folder = os.getcwd()
    # The mount namespace last: after it, /proc shows the node's processes. Opened first for the same reason.
    names = ("user", "ipc", "uts", "net", "pid_for_children", "mnt")
    opened = {name: os.open(f"/proc/{holder}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names}
    if os.path.sameopenfile(opened["user"], os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)):
        del opened["user"]  # made by root, without a namespace of users
    for name, descriptor in opened.items():
        if _libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the node's namespace {name}")
    os.chdir(folder)


def main() -> None:
    """Enter, start the command, and end as it ends."""
    holder, *command = sys.argv[1:]
    _enter(int(holder))
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = os.fork()
    if child == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
