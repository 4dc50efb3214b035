"""Probes of the machine for `shoal doctor`: standard library only; one function imports torch.

A probe returns None, or something empty, for what the platform does not report; the checks decide what that means.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21  # bits of Linux's capability mask


@dataclass(frozen=True)
class TorchFacts:
    """The installed torch, and the GPUs it can use."""

    version: str = ""
    """Empty when torch cannot be imported."""
    error: str = ""
    """Why it cannot be imported, or its warning about the GPU."""
    cuda: str | None = None
    """The CUDA version it was built for; None for a CPU build."""
    gpus: tuple[str, ...] = ()
    """Names of the GPUs it can use."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Their compute capabilities."""
    archs: tuple[str, ...] = ()
    """What it was compiled for: sm_90 is machine code, compute_90 is code that the driver compiles."""


@dataclass(frozen=True)
class DockerFacts:
    """The docker client, and the server behind it."""

    installed: bool
    server: str = ""
    """Version of the server; empty when it does not answer."""
    error: str = ""
    """The client's message if the server does not answer."""


@dataclass(frozen=True)
class Memory:
    """Main memory, in bytes; within a container, what the container may use."""

    total: int
    available: int


@dataclass(frozen=True)
class DataFacts:
    """The data sets of the catalogue."""

    here: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    missing_folder: str = ""
    """$SHOAL_DATA, if there is no such folder; data sets are then not searched for."""


def torch_facts() -> TorchFacts:
    """Version and GPUs of torch, if it can be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries cannot be loaded
        return TorchFacts(error=str(error).splitlines()[0] if str(error) else repr(error))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        names = tuple(map(torch.cuda.get_device_name, gpus))
        capabilities = tuple(map(torch.cuda.get_device_capability, gpus))
        archs = tuple(torch.cuda.get_arch_list()) if gpus else ()
    error = str(said[0].message).splitlines()[0] if said else ""
    return TorchFacts(torch.__version__, error, torch.version.cuda, names, capabilities, archs)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the NVIDIA driver can run; None without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
        version = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value == 0:
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def usable_cores() -> float:
    """Cores this process may use: its affinity, and the container's quota if that is less."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, int(quota) / int(period))
    return cores


def memory() -> Memory | None:
    """Total and available memory; None if the platform does not report it."""
    lines = [line.split() for line in _read("/proc/meminfo").splitlines()]
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
    if "MemTotal" in kib:
        total, available = kib["MemTotal"] * 1024, kib.get("MemAvailable", kib["MemTotal"]) * 1024
    elif "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return None
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        total, available = min(total, int(limit)), min(available, max(0, int(limit) - int(used)))
    return Memory(total, available)


def shm_bytes() -> int | None:
    """Size of /dev/shm; None if there is none."""
    try:
        facts = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    return facts.f_frsize * facts.f_blocks


def memfd_error() -> str:
    """Why processes cannot share anonymous memory; empty if they can."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        return "this system has no memfd_create"
    try:
        number = create("shoal-doctor")
        try:
            os.ftruncate(number, 4096)
            os.close(os.open(f"/proc/{os.getpid()}/fd/{number}", os.O_RDWR))
        finally:
            os.close(number)
    except OSError as error:
        return str(error)
    return ""


def port_error() -> str:
    """Why no port can be opened and reached on loopback; empty if one can."""
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with socket.create_connection(server.getsockname(), timeout=5):
                return ""
    except OSError as error:
        return str(error)


def docker() -> DockerFacts:
    """The version of the docker server; waits five seconds at most."""
    client = shutil.which("docker")
    if client is None:
        return DockerFacts(installed=False)
    try:
        answer = subprocess.run(
            [client, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DockerFacts(installed=True, error=str(error))
    if answer.returncode != 0:
        return DockerFacts(installed=True, error=(answer.stderr.strip() or "no answer").splitlines()[0])
    return DockerFacts(installed=True, server=answer.stdout.strip())


def data_sets() -> DataFacts | None:
    """Which data sets are on this machine; None if torch, which reads them, cannot be imported."""
    try:
        from shoal.data.sources.files import inventory
    except (ImportError, OSError):
        return None
    named = os.environ.get("SHOAL_DATA", "")
    if named and not Path(named).expanduser().is_dir():
        return DataFacts(missing_folder=with_tilde(named))
    rows = inventory()
    return DataFacts(
        here=tuple(row.name for row in rows if row.folder is not None),
        absent=tuple(row.name for row in rows if row.folder is None),
    )


def may_make_namespaces() -> bool:
    """Whether this process has the capabilities that `ip netns add` needs."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            mask = int(line.split()[1], 16)
            return bool(mask >> CAP_NET_ADMIN & 1 and mask >> CAP_SYS_ADMIN & 1)
    return False


def write_error(folder: Path) -> str:
    """Why a folder cannot be written; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder."""
    return shutil.disk_usage(folder).free


def executable() -> str:
    """The interpreter, with the home folder as ~: reports are pasted in public."""
    return with_tilde(sys.executable)


def with_tilde(path: str | Path) -> str:
    """A path with the home folder as ~."""
    home = str(Path.home())
    text = str(path)
    return f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
