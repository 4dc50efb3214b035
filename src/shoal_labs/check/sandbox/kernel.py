"""Calls of Linux that Python 3.11 does not have: mounts, capabilities, refused calls, the loopback device.

Each raises OSError with the name of the call. Other systems have none of them: `available` says so.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_MOUNT_SETATTR = 442
"""The same number on every architecture; Linux 5.12 and later."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 22, 36, 38
SECCOMP_MODE_FILTER, SECCOMP_ALLOW, SECCOMP_ERRNO = 2, 0x7FFF0000, 0x00050000
BPF_LOAD, BPF_IF_EQUAL, BPF_IF_AT_LEAST, BPF_RETURN = 0x20, 0x15, 0x35, 0x06
OTHER_CALLS = 0x40000000
"""From this number on, x86 has the calls of another binary interface."""
REFUSED_CALLS = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
"""Calls that take memory which no process shows, or reach into other processes, the kernel or the user's keys."""
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's number of a processor, and where the numbers of its calls are in the table."""
LAST_CAPABILITY = 40
CAPABILITY_VERSION = 0x20080522
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def available() -> bool:
    """Whether the system can have these calls at all."""
    return sys.platform == "linux"


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _called(name: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give this process new namespaces; a new PID namespace begins with its next child."""
    _called("unshare", _libc().unshare(flags))


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    # Paths in the file system's own encoding: a folder's name need not be UTF-8.
    given = [os.fsencode(text) for text in (source, target, kind)]
    _called(f"mount {target}", _libc().mount(*given, ctypes.c_ulong(flags), os.fsencode(options)))


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _set_attributes(path: str, attributes: int, *, below: bool) -> None:
    given = _MountAttributes(attributes, 0, MS_PRIVATE, 0)
    _called(
        f"mount_setattr {path}",
        _libc().syscall(
            SYS_MOUNT_SETATTR,
            AT_FDCWD,
            os.fsencode(path),
            AT_RECURSIVE if below else 0,
            ctypes.byref(given),
            ctypes.c_size_t(ctypes.sizeof(given)),
        ),
    )


def make_private(path: str) -> None:
    """Keep later changes of a mount, and of all mounts below it, in this namespace."""
    _set_attributes(path, 0, below=True)


def make_read_only(path: str, *, below: bool) -> None:
    """Make a mount read-only, without devices, and private; `below`: all mounts below it as well."""
    _set_attributes(path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, below=below)


def unmount(path: str) -> None:
    """Take a mount out of sight; other mounts of the same files stay."""
    _called(f"umount {path}", _libc().umount2(os.fsencode(path), MNT_DETACH))


def enter_root() -> None:
    """Make the current directory, a mount, the root of this namespace; the old root is gone."""
    _called("pivot_root", _libc().pivot_root(b".", b"."))
    unmount(".")
    os.chdir("/")


def die_with_parent(signal: int) -> None:
    """Send this process a signal when its parent dies."""
    _called("prctl", _libc().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _called("prctl", _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def show_memory(shown: bool) -> None:
    """Whether other processes of this user may read this process's memory, and take its open files."""
    _called("prctl", _libc().prctl(PR_SET_DUMPABLE, int(shown), 0, 0, 0))


def drop_capabilities() -> None:
    """Give up every capability for good: mounts and limits can no longer be changed."""
    libc = _libc()
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    _called("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _called("capset", libc.capset(header, bytes(24)))


def refuse_calls() -> None:
    """Let REFUSED_CALLS fail in this process and its children, on processors whose numbers are known."""
    machine = os.uname().machine
    if machine not in MACHINES or sys.maxsize < 2**32:
        return
    architecture, which = MACHINES[machine]
    numbers = [each[which] for each in REFUSED_CALLS.values()]
    jumps = len(numbers) + 1
    program = [(BPF_LOAD, 0, 0, 4), (BPF_IF_EQUAL, 0, jumps + 2, architecture), (BPF_LOAD, 0, 0, 0)]
    program.append((BPF_IF_AT_LEAST, jumps, 0, OTHER_CALLS))
    program += [(BPF_IF_EQUAL, jumps - place, 0, number) for place, number in enumerate(numbers, start=1)]
    program += [(BPF_RETURN, 0, 0, SECCOMP_ALLOW), (BPF_RETURN, 0, 0, SECCOMP_ERRNO | errno.EPERM)]
    code = b"".join(struct.pack("=HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(code)
    given = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _called("seccomp", _libc().prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, given, 0, 0))


def loopback_up() -> None:
    """Switch on the loopback device of a new network namespace, which has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
