"""The doctor's checks: each turns what its probes found into OK, WARN or FAIL and the command that repairs it.

FAIL is what every run needs. WARN is what some runs need, and says which; a GPU, docker and namespaces are never more.
"""

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from shoal.cli.doctor import probes

Status = Literal["OK", "WARN", "FAIL"]

GIB = 2**30
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 8)
LITTLE_MEMORY = 2 * GIB  # torch alone takes some 0.3 GiB per worker
LITTLE_SHM = 256 * 2**20  # docker gives 64 MiB unless told otherwise
LITTLE_DISK = 1 * GIB

INSTALL = "pip install --constraint constraints.txt --editable ."
INSTALL_CUDA = (
    "pip install --force-reinstall --index-url https://pypi.org/simple --constraint constraints.txt torch"
)


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report."""

    name: str
    status: Status
    found: str
    """What is there, or what one cannot do without it."""
    repair: str = ""
    """The command that mends it; empty when all is well."""


class Outcome(NamedTuple):
    """What a check says; the table adds the name."""

    status: Status
    found: str
    repair: str = ""


def system(name: str = "", release: str = "", machine: str = "") -> Outcome:
    """Linux is the full platform."""
    name, release, machine = (
        name or platform.system(),
        release or platform.release(),
        machine or platform.machine(),
    )
    found = f"{name} {release}, {machine}"
    if name == "Linux":
        return Outcome("OK", found)
    return Outcome(
        "WARN",
        f"{found}: workers on slow links and shared memory between workers need Linux",
        "Windows: wsl --install; macOS: open the folder in its dev container (docs/setup.md)",
    )


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Outcome:
    """The interpreter is new enough."""
    found = f"{_dotted(version)} ({probes.executable()})"
    if version >= OLDEST_PYTHON:
        return Outcome("OK", found)
    oldest = _dotted(OLDEST_PYTHON)
    return Outcome(
        "FAIL", f"{found}; shoal needs {oldest} or newer", f"make clean && make install PYTHON=python{oldest}"
    )


def torch(facts: Callable[[], probes.TorchFacts] = probes.torch_facts) -> Outcome:
    """Torch can be imported and is new enough."""
    known = facts()
    if not known.version:
        return Outcome("FAIL", f"cannot be imported: {known.error}", INSTALL)
    if _numbers(known.version) < OLDEST_TORCH:
        return Outcome("FAIL", f"{known.version}; shoal needs {_dotted(OLDEST_TORCH)} or newer", INSTALL)
    return Outcome("OK", known.version)


def cuda(
    facts: Callable[[], probes.TorchFacts] = probes.torch_facts,
    driver: Callable[[], tuple[int, int] | None] = probes.driver_cuda,
) -> Outcome:
    """Driver and torch's build fit each other, and torch sees the GPU."""
    known, runs = facts(), driver()
    if known.gpus:
        runs_up_to = f", driver up to CUDA {_dotted(runs)}" if runs else ""
        return Outcome("OK", f"{', '.join(known.gpus)} (torch for CUDA {known.cuda}{runs_up_to})")
    if runs is None:
        return Outcome(
            "WARN",
            "no NVIDIA driver: everything runs on the CPU, and --device cuda does not",
            "if there is an NVIDIA GPU: sudo ubuntu-drivers install (Debian: sudo apt install nvidia-driver)",
        )
    if known.cuda is None:
        return Outcome(
            "WARN",
            f"the driver runs CUDA up to {_dotted(runs)}, but this torch is built for the CPU alone: "
            f"--device cuda does not run",
            INSTALL_CUDA,
        )
    if runs[0] < _numbers(known.cuda)[0]:  # within one major version, an older driver runs a newer build
        return Outcome(
            "WARN",
            f"torch is built for CUDA {known.cuda}, and the driver runs CUDA up to {_dotted(runs)}: "
            f"--device cuda does not run",
            "sudo ubuntu-drivers install (Debian: sudo apt install nvidia-driver), then reboot",
        )
    reason = f": {known.error}" if known.error else ""
    return Outcome(
        "WARN",
        f"a driver for CUDA {_dotted(runs)} is there, but torch sees no GPU{reason}",
        "unset CUDA_VISIBLE_DEVICES; nvidia-smi (in a container: docker run --gpus all)",
    )


def cores(usable: Callable[[], float] = probes.usable_cores) -> Outcome:
    """More than one core, or workers take turns."""
    count = usable()
    if count >= 2:
        return Outcome("OK", f"{count:g}")
    return Outcome(
        "WARN",
        f"{count:g}: several workers will take turns, so no speed-up can be seen",
        "in a container: docker run --cpus 2; else train on a machine with more cores",
    )


def memory(read: Callable[[], probes.Memory | None] = probes.memory) -> Outcome:
    """Enough main memory for a worker or two."""
    known = read()
    if known is None:
        return Outcome("OK", "this system does not tell")
    found = f"{known.available / GIB:.1f} of {known.total / GIB:.1f} GiB available"
    if known.available >= LITTLE_MEMORY:
        return Outcome("OK", found)
    return Outcome(
        "WARN",
        f"{found}: several workers or a large model may not fit",
        "shoal train --micro-batch 256 … needs less; in a container: docker run --memory 4g",
    )


def memfd(error: Callable[[], str] = probes.memfd_error) -> Outcome:
    """Memory without a name that peers can open: how workers on one machine share theirs."""
    problem = error()
    if not problem:
        return Outcome("OK", "works: workers on one machine can share memory")
    return Outcome(
        "WARN",
        f"{problem}: workers on one machine cannot share memory",
        "use Linux, with /proc mounted: mount -t proc proc /proc",
    )


def shm(size: Callable[[], int | None] = probes.shm_bytes) -> Outcome:
    """The size of /dev/shm, on which other torch programs rely."""
    number = size()
    if number is None:
        return Outcome(
            "WARN",
            "there is none: worker processes of torch's own DataLoader cannot run",
            "on Linux: mount -t tmpfs -o size=1g tmpfs /dev/shm",
        )
    found = f"{number / GIB:.2f} GiB"
    if number >= LITTLE_SHM:
        return Outcome("OK", found)
    return Outcome(
        "WARN",
        f"{found}: worker processes of torch's own DataLoader may die with a bus error",
        "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm",
    )


def port(error: Callable[[], str] = probes.port_error) -> Outcome:
    """Workers find each other through a port, on one machine through loopback."""
    problem = error()
    if not problem:
        return Outcome("OK", "127.0.0.1 gives a free one and can be reached")
    return Outcome("FAIL", f"127.0.0.1: {problem}; workers cannot find each other", "sudo ip link set lo up")


def docker(ask: Callable[[], probes.DockerFacts] = probes.docker) -> Outcome:
    """Containers as nodes."""
    known = ask()
    if known.server:
        return Outcome("OK", f"server {known.server}")
    if not known.installed:
        return Outcome(
            "WARN",
            "not installed: workers cannot run in containers",
            "sudo apt install docker.io docker-compose-v2",
        )
    repair = "sudo systemctl start docker"
    if "permission denied" in known.error.lower():
        repair = 'sudo usermod -aG docker "$USER", then log in again'
    return Outcome(
        "WARN", f"the server does not answer ({known.error}): workers cannot run in containers", repair
    )


def namespaces(
    has_ip: Callable[[], bool] = lambda: shutil.which("ip") is not None,
    allowed: Callable[[], bool] = probes.may_make_namespaces,
) -> Outcome:
    """Workers with a network of their own, whose links can be made slow."""
    without = "workers cannot get a network each (--link needs none)"
    if not has_ip():
        return Outcome("WARN", f"the command `ip` is missing: {without}", "sudo apt install iproute2")
    if not allowed():
        return Outcome(
            "WARN",
            f"not allowed to this user: {without}",
            "make them with sudo (in a container: docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN)",
        )
    return Outcome("OK", "may be made: workers can get a network each")


def data(ask: Callable[[], probes.DataFacts | None] = probes.data_sets) -> Outcome:
    """The data sets that are here, and whether the folder that was named exists."""
    known = ask()
    if known is None:
        return Outcome("WARN", "cannot be looked for until torch can be imported", INSTALL)
    if known.missing_folder:
        return Outcome(
            "WARN",
            f"$SHOAL_DATA is {known.missing_folder}, which does not exist: only digits can be loaded",
            f"mkdir -p {known.missing_folder}, or unset SHOAL_DATA",
        )
    if "digits" not in known.here:
        return Outcome(
            "FAIL",
            "digits, which is part of the package, is missing",
            f"{INSTALL} --force-reinstall --no-deps",
        )
    fetchable = f"; `shoal data fetch` gets: {', '.join(known.absent)}" if known.absent else ""
    return Outcome("OK", f"here: {', '.join(known.here)}{fetchable}")


def folder(
    here: Callable[[], Path] = Path.cwd,
    error: Callable[[Path], str] = probes.write_error,
    free: Callable[[Path], int] = probes.free_bytes,
) -> Outcome:
    """Runs are written below the current folder."""
    runs = here() / "runs"
    place = runs if runs.is_dir() else here()
    problem = error(place)
    if problem:
        return Outcome(
            "FAIL",
            f"{probes.homeless(place)} cannot be written: {problem}",
            "cd to a folder of your own, or shoal train --runs-dir ~/runs …",
        )
    found = f"{probes.homeless(place)} can be written, {free(place) / GIB:.1f} GiB free"
    if free(place) >= LITTLE_DISK:
        return Outcome("OK", found)
    return Outcome("WARN", f"{found}: checkpoints may fill it", "shoal train --runs-dir FOLDER_WITH_ROOM …")


CHECKS: dict[str, Callable[[], Outcome]] = {
    "system": system,
    "python": python,
    "torch": torch,
    "cuda": cuda,
    "cores": cores,
    "memory": memory,
    "memfd": memfd,
    "/dev/shm": shm,
    "port": port,
    "docker": docker,
    "namespaces": namespaces,
    "data": data,
    "folder": folder,
}


def checks(table: dict[str, Callable[[], Outcome]] = CHECKS) -> list[Check]:
    """Every check of the table, in its order. A check that fails itself is a warning: a doctor does not faint."""
    return [Check(name, *_examined(check)) for name, check in table.items()]


def _examined(check: Callable[[], Outcome]) -> Outcome:
    try:
        return check()
    except Exception as error:
        return Outcome(
            "WARN", f"could not be examined: {type(error).__name__}: {error}", "report this as a bug"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> _numbers("2.13.0+cpu"), _numbers("2.9.0a0")
    ((2, 13, 0), (2, 9))
    """
    numbers: list[int] = []
    for part in version.partition("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
