"""A new root for one task, in namespaces of its own: users, mounts, processes, network.

Phase 1, leave     new user, mount, PID, network and IPC namespaces; the next child is the first process of them
Phase 2, furnish   a root with Python, its packages and the system's libraries, read-only; an empty /tmp; the solution
Phase 3, enter     the old root is gone; loopback up, no capabilities, limits
"""

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from shoal_labs.check.sandbox import kernel
from shoal_labs.check.sandbox.limits import GIB, Limits, apply

SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *(
        f"/usr/{name}"
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "include")
    ),
    *(f"/usr/local/{name}" for name in ("bin", "lib", "lib64", "share", "include")),
    *(f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")),
    *(f"/sys/devices/system/{name}" for name in ("cpu", "node")),
)
"""Programs and libraries; of /etc and /sys only what they read."""
OF_PYTHON = ("bin", "lib", "lib64", "include", "pyvenv.cfg")
"""The parts of an installation of Python. The folder itself may also hold other things, or be a home folder."""
PACKAGES = ("site-packages", "dist-packages")
"""Names of the folders into which packages are installed."""
DEVICES = ("null", "zero", "full", "random", "urandom")
WRITABLE = ("tmp", "var/tmp", "dev/shm")
"""Empty folders of the sandbox's own."""
EMPTY = ("proc", "sys", "run", "etc")
MOST_FILES = 2**16
"""A file takes memory even if it is empty."""
BASE = "/tmp"
"""Where the new root is put together. Every system has this folder; everything needed from it is opened before."""
SOLUTION = Path("/tmp/solution")
"""Where the student's folder is inside: what is written there goes to memory."""
PID_MAX = 300 + 256
"""All process numbers are below this. Once numbers up to 300 are used, the kernel gives larger ones only."""


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


def refusal() -> str:
    """Why no sandbox can be made on this system; empty if one can. In a child: namespaces cannot be left again."""
    if not kernel.available():
        return f"{sys.platform} has no namespaces"
    child = os.fork()
    if child == 0:
        os._exit(_errno_of_settling())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"namespaces are not permitted: {os.strerror(status)}" if status else ""


def _errno_of_settling() -> int:
    """Go through all phases; the number of the error that stops them, or 0."""
    try:
        leave()
        first = os.fork()
        if first:
            return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        settle(Path(__file__).parent, Limits())
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def settle(folder: Path, limits: Limits) -> Path:
    """Phases 2 and 3, in the first process of the new namespaces; the student's folder as it is seen inside."""
    kernel.make_private("/")
    apply(limits, private=True)
    needed = needed_paths()
    shown = {path: os.open(path, os.O_PATH) for path, link in needed.items() if not link}
    devices = {f"dev/{name}": os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    solution = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    kernel.mount("tmpfs", BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4m,mode=0755")
    os.chdir(BASE)
    _lay_out({path: link for path, link in needed.items() if link}, shown)
    kernel.make_read_only(".", below=True)
    for place, descriptor in devices.items():
        _bind(descriptor, place)
    _own_processes()
    _own_folders(solution, int(limits.file_gib * GIB))
    kernel.enter_root()
    for descriptor in (solution, *shown.values(), *devices.values()):
        os.close(descriptor)
    kernel.loopback_up()
    kernel.drop_capabilities()
    kernel.refuse_calls()
    # Torch is given the device: it would look up the host's own name.
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    os.chdir(SOLUTION)
    return SOLUTION


def _bind(descriptor: int, place: str) -> None:
    kernel.mount(f"/proc/self/fd/{descriptor}", place, "", kernel.MS_BIND | kernel.MS_REC)


def _lay_out(links: Mapping[str, str], shown: Mapping[str, int]) -> None:
    """The folders of the new root, which is the current directory, with everything that is only read."""
    for name in (*EMPTY, *WRITABLE):
        os.makedirs(name)
    for name in DEVICES:
        Path("dev", name).touch()
    os.symlink("/proc/self/fd", "dev/fd")
    for name, text in _of_etc().items():
        Path("etc", name).write_text(text, encoding="utf-8")
    for path, link in links.items():
        os.makedirs(os.path.dirname(path[1:]) or ".", exist_ok=True)
        os.symlink(link, path[1:])
    for path, descriptor in shown.items():
        place = Path(path[1:])
        if stat.S_ISDIR(os.stat(descriptor).st_mode):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        _bind(descriptor, str(place))


def _of_etc() -> dict[str, str]:
    """Files in which the C library looks up names: of this user, and of this machine without asking a server."""
    return {
        "passwd": f"student:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/sh\n",
        "group": f"student:x:{os.getgid()}:\n",
        "hosts": f"127.0.0.1 localhost {socket.gethostname()}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def _own_folders(solution: int, size: int) -> None:
    """The folders that can be written, in memory, `size` bytes together; one of them shows the student's.

    If Python is installed below such a folder, it is mounted there: nobody inside can move or replace it.
    """
    options = f"size={size},nr_inodes={MOST_FILES},mode=0755"
    kernel.mount("tmpfs", "run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for name in WRITABLE:
        os.makedirs(f"run/{name}")
        os.chmod(f"run/{name}", 0o1777)
        for shown in os.scandir(name):
            place = f"run/{name}/{shown.name}"
            if shown.is_symlink():
                os.symlink(os.readlink(shown.path), place)
                continue
            os.mkdir(place) if shown.is_dir() else Path(place).touch()
            kernel.mount(shown.path, place, "", kernel.MS_BIND | kernel.MS_REC)
        kernel.mount(f"run/{name}", name, "", kernel.MS_BIND | kernel.MS_REC)
    for name in ("tmp/solution", "written", "work"):
        os.mkdir(f"run/{name}")
    lower, place = f"/proc/self/fd/{solution}", "tmp/solution"
    layers = f"lowerdir={lower},upperdir=run/written,workdir=run/work,userxattr"
    try:
        kernel.mount("overlay", place, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, layers)
    except OSError:  # without overlays it cannot be written at all
        kernel.mount(lower, place, "", kernel.MS_BIND)
        kernel.make_read_only(place, below=False)
    kernel.unmount("run")


def _own_processes() -> None:
    """A /proc with the sandbox's processes only, and few of them; a container may refuse it, then it stays empty."""
    with suppress(OSError):
        kernel.mount("proc", "proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
        with suppress(OSError):
            Path("proc/sys/user/max_user_namespaces").write_text("0")
        with suppress(
            OSError
        ):  # RLIMIT_NPROC does not hold for an administrator; this does, from Linux 6.14 on
            Path("proc/sys/kernel/pid_max").write_text(str(PID_MAX))
        kernel.make_read_only("proc", below=False)


@cache
def needed_paths() -> dict[str, str]:
    """Every path of the old root that the new one has, and where it leads if it is a link."""
    found = {os.path.abspath(path) for path in (*SYSTEM, *_of_python(), *_imported(), *_loaded())}
    found |= {os.path.realpath(path) for path in found}
    kept: dict[str, str] = {}
    for path in sorted(found, key=lambda each: each.split("/")):  # a folder before everything in it
        if os.path.lexists(path) and not any(path.startswith(f"{each}/") for each in kept):
            kept[path] = os.readlink(path) if os.path.islink(path) else ""
    return kept


def _of_python() -> Iterator[str]:
    """The installation of Python, its virtual environment, and the folders of packages."""
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield from (f"{prefix}/{part}" for part in OF_PYTHON)
    yield os.path.realpath(sys.executable)
    yield from (path for path in sys.path if os.path.basename(path) in PACKAGES or os.path.isfile(path))


def _imported() -> Iterator[str]:
    """The packages and modules that this process has imported, wherever they are."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and name != "__main__" and isinstance(file, str):
            is_package = os.path.basename(file).startswith("__init__.")
            yield os.path.dirname(file) if is_package else file


def _loaded() -> Iterator[str]:
    """The native libraries that this process has loaded; with their folder, if it is one of libraries."""
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and ".so" in path[0] and os.path.isfile(path[0]):
            folder = os.path.dirname(path[0])
            yield folder if {"lib", "lib64"} & set(folder.split("/")) else path[0]
