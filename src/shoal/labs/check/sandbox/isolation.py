"""Namespaces for one task: own users, mounts, processes, network. Nothing outside can be written or reached.

Phase 1, leave     new user, mount, PID, network and IPC namespaces; the next child is the first process of them
Phase 2, mount     everything read-only; /tmp, /dev and /run replaced; the other students' folders empty
Phase 3, settle    loopback up, no capabilities, limits
"""

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from shoal.labs.check.sandbox import kernel
from shoal.labs.check.sandbox.limits import GIB, Limits, apply

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")
"""Empty folders of the sandbox's own."""
HIDDEN = ("/run", "/var/run", "/mnt", "/media")
"""Sockets of services (a container engine would give away the machine), and other disks."""
DEVICES = ("null", "zero", "full", "random", "urandom")
SOLUTION = Path("/tmp/solution")
"""Where the student's folder is inside: what is written there goes to memory."""
LEAST_PID_MAX = 301
"""The kernel accepts no smaller limit of process numbers."""


def leave() -> None:
    """Phase 1. The caller forks next, and goes on in the child with `settle`."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(
        kernel.CLONE_NEWUSER
        | kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
    )
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def try_out(folder: Path) -> None:
    """Raise OSError if a sandbox cannot be made; in a child, because namespaces cannot be left again."""
    child = os.fork()
    if child == 0:
        os._exit(_errno_of_settling(folder))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(status, f"namespaces are not permitted: {os.strerror(status)}")


def _errno_of_settling(folder: Path) -> int:
    """Go through all phases; the number of the error that stops them, or 0."""
    try:
        leave()
        first = os.fork()
        if first:
            return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        settle(folder, (), Limits())
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def counts_processes() -> bool:
    """Whether the namespace has a limit of its own for the number of processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text()) <= LEAST_PID_MAX
    except OSError:
        return False


def settle(folder: Path, others: Sequence[Path], limits: Limits) -> Path:
    """Phases 2 and 3, in the first process of the new namespaces; the student's folder as it is seen inside."""
    solution = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    needed = {path: os.open(path, os.O_PATH) for path in _needed_by_python()}
    kernel.make_read_only("/", below=True)
    for other in others:
        if not folder.is_relative_to(other):
            _mount_empty(str(other), read_only=True)
    for hidden in HIDDEN:
        if Path(hidden).is_dir() and not Path(hidden).is_symlink():
            _mount_empty(hidden, read_only=True)
    _own_devices()
    for private in PRIVATE:
        if Path(private).is_dir():
            _mount_empty(private, size=int(limits.file_gib * GIB))
    for path, descriptor in needed.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", path, "", kernel.MS_BIND | kernel.MS_REC)
    _show_solution(solution)
    _own_processes()
    kernel.loopback_up()
    for descriptor in (solution, *needed.values()):
        os.close(descriptor)
    kernel.drop_capabilities()
    apply(limits, private=True)
    # Without a name server, looking up the host's own name would take long: torch is given the device.
    os.environ.update(HOME="/tmp", TMPDIR="/tmp", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    os.chdir(SOLUTION)
    return SOLUTION


def _mount_empty(target: str, *, size: int = 2**16, read_only: bool = False) -> None:
    kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"size={size},mode=0777")
    if read_only:
        kernel.make_read_only(target, below=False)


def _own_devices() -> None:
    """A /dev with harmless devices only: an administrator's process could write to a disk."""
    kept = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    _mount_empty("/dev")
    for name, descriptor in kept.items():
        Path("/dev", name).touch()
        kernel.mount(f"/proc/self/fd/{descriptor}", f"/dev/{name}", "", kernel.MS_BIND)
        os.close(descriptor)
    Path("/dev/shm").mkdir()
    Path("/dev/fd").symlink_to("/proc/self/fd")


def _show_solution(descriptor: int) -> None:
    """The student's folder, writable in memory only; without overlays it cannot be written at all."""
    SOLUTION.mkdir()
    upper, work = SOLUTION.with_name(".written"), SOLUTION.with_name(".work")
    upper.mkdir()
    work.mkdir()
    lower = f"/proc/self/fd/{descriptor}"
    try:
        kernel.mount(
            "overlay",
            str(SOLUTION),
            "overlay",
            options=f"lowerdir={lower},upperdir={upper},workdir={work},userxattr",
        )
    except OSError:
        kernel.mount(lower, str(SOLUTION), "", kernel.MS_BIND)
        kernel.make_read_only(str(SOLUTION), below=False)


def _own_processes() -> None:
    """A /proc with the sandbox's processes only, and few of them; a container may refuse it, then the old one stays."""
    with suppress(OSError):
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    with suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    with suppress(OSError):  # RLIMIT_NPROC does not hold for an administrator; this does, from Linux 6.14 on
        Path("/proc/sys/kernel/pid_max").write_text(str(LEAST_PID_MAX))
    with suppress(OSError):
        kernel.make_read_only("/proc", below=False)


def _needed_by_python() -> Iterable[str]:
    """Folders of Python, torch and Shoal that the private folders would hide."""
    found = {str(Path(each).resolve()) for each in (*sys.path, sys.prefix, sys.base_prefix) if each}
    return sorted(each for each in found if Path(each).is_dir() and each.startswith((*PRIVATE, *HIDDEN)))
