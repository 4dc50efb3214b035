"""The checks of `shoal doctor`: each turns what its probes found into OK, WARN or FAIL, with a command that fixes it.

FAIL: no run works. WARN: some runs do not work, and the check says which; a GPU, docker and namespaces are never more.
"""

import platform
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from shoal.cli.doctor import probes

Status = Literal["OK", "WARN", "FAIL"]

GIB = 2**30
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 8)
LITTLE_MEMORY = 2 * GIB  # torch alone takes about 0.3 GiB per worker
LITTLE_SHM = 256 * 2**20  # the default of docker is 64 MiB
LITTLE_DISK = 1 * GIB

INSTALL = "pip install --constraint constraints.txt --editable ."
INSTALL_CUDA = (
    "pip install --force-reinstall --index-url https://pypi.org/simple --constraint constraints.txt torch"
)

OTHER_BUILD = "install the build of torch for this GPU: docs/en/start/install.md, GPU builds"


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    found: str
    """What the machine has, or what does not work without it."""
    repair: str = ""
    """The command that fixes it; empty if the status is OK."""


class Outcome(NamedTuple):
    """The result of a check, without its name."""

    status: Status
    found: str
    repair: str = ""


def _warn(found: str, repair: str) -> Outcome:
    return Outcome("WARN", found, repair)


def _fail(found: str, repair: str) -> Outcome:
    return Outcome("FAIL", found, repair)


def system(name: str = "", release: str = "", machine: str = "") -> Outcome:
    """Everything works on Linux."""
    known = platform.uname()
    found = f"{name or known.system} {release or known.release}, {machine or known.machine}"
    if found.startswith("Linux"):
        return Outcome("OK", found)
    repair = "Windows: wsl --install; macOS: open the folder in its dev container (docs/en/start/install.md)"
    return _warn(f"{found}: slow links and shared memory between workers need Linux", repair)


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Outcome:
    """The interpreter is new enough."""
    found, oldest = f"{_dotted(version)} ({probes.executable()})", _dotted(OLDEST_PYTHON)
    if version >= OLDEST_PYTHON:
        return Outcome("OK", found)
    return _fail(
        f"{found}; shoal needs {oldest} or newer", f"make clean && make install PYTHON=python{oldest}"
    )


def torch(facts: Callable[[], probes.TorchFacts] = probes.torch_facts) -> Outcome:
    """Torch can be imported and is new enough."""
    known = facts()
    if not known.version:
        return _fail(f"cannot be imported: {known.error}", INSTALL)
    if _numbers(known.version) < OLDEST_TORCH:
        return _fail(f"{known.version}; shoal needs {_dotted(OLDEST_TORCH)} or newer", INSTALL)
    return Outcome("OK", known.version)


def cuda(
    facts: Callable[[], probes.TorchFacts] = probes.torch_facts,
    driver: Callable[[], tuple[int, int] | None] = probes.driver_cuda,
) -> Outcome:
    """The driver and torch's build fit each other, torch sees the GPU, and was compiled for it."""
    known, newest = facts(), driver()
    supports = f"the driver supports CUDA up to {_dotted(newest)}" if newest else ""
    install_driver = "sudo ubuntu-drivers install (Debian: sudo apt install nvidia-driver)"
    for name, capability in zip(known.gpus, known.capabilities, strict=False):
        if not runs_on(capability, known.archs):
            found = f"{name} has compute capability {_dotted(capability)}, but this torch is compiled for "
            return _warn(f"{found}{', '.join(known.archs)}: --device cuda does not work", OTHER_BUILD)
    if known.gpus:
        return Outcome(
            "OK", f"{', '.join(known.gpus)} (torch for CUDA {known.cuda}{supports and '; ' + supports})"
        )
    if newest is None:
        found = "no NVIDIA driver: everything runs on the CPU, and --device cuda does not work"
        return _warn(found, f"if there is an NVIDIA GPU: {install_driver}")
    if known.cuda is None:
        return _warn(
            f"{supports}, but this torch is for the CPU alone: --device cuda does not work", INSTALL_CUDA
        )
    if newest[0] < _numbers(known.cuda)[0]:  # within one major version, an older driver runs a newer build
        found = f"torch is built for CUDA {known.cuda}, but {supports}: --device cuda does not work"
        return _warn(found, f"{install_driver}, then reboot")
    reason = f": {known.error}" if known.error else ""
    repair = "unset CUDA_VISIBLE_DEVICES; nvidia-smi (in a container: docker run --gpus all)"
    return _warn(f"{supports}, but torch sees no GPU{reason}", repair)


def runs_on(capability: tuple[int, int], archs: Sequence[str]) -> bool:
    """Whether a GPU of this compute capability runs what torch was compiled for; true where that is not known.

    Machine code (sm_86) runs on the same major version from its minor version on. Code that the driver compiles
    (compute_86) runs on every later capability. A name with a letter is for one capability (a) or one family (f).

    >>> runs_on((8, 9), ["sm_80", "sm_90"]), runs_on((7, 0), ["sm_80", "sm_90"]), runs_on((12, 0), ["compute_90"])
    (True, False, True)
    """
    found = [re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch) for arch in archs]
    built = [(each[1], (int(each[2]), int(each[3])), each[4]) for each in found if each]

    def fits(kind: str, least: tuple[int, int], letter: str) -> bool:
        if letter == "a":
            return capability == least
        is_family = kind == "sm" or letter == "f"
        return capability >= least and (capability[0] == least[0] or not is_family)

    return not built or any(fits(*each) for each in built)


def cores(usable: Callable[[], float] = probes.usable_cores) -> Outcome:
    """There is more than one core, so that workers run at the same time."""
    count = usable()
    if count >= 2:
        return Outcome("OK", f"{count:g}")
    repair = "in a container: docker run --cpus 2; else train on a machine with more cores"
    return _warn(f"{count:g}: several workers take turns and are no faster than one", repair)


def memory(read: Callable[[], probes.Memory | None] = probes.memory) -> Outcome:
    """There is enough main memory for several workers."""
    known = read()
    if known is None:
        return Outcome("OK", "unknown on this system")
    found = f"{known.available / GIB:.1f} of {known.total / GIB:.1f} GiB available"
    if known.available >= LITTLE_MEMORY:
        return Outcome("OK", found)
    repair = "shoal train --micro-batch 256 … needs less; in a container: docker run --memory 4g"
    return _warn(f"{found}: several workers or a large model may not fit", repair)


def memfd(error: Callable[[], str] = probes.memfd_error) -> Outcome:
    """Workers on one machine can share memory."""
    problem = error()
    if not problem:
        return Outcome("OK", "works: workers on one machine can share memory")
    found = f"{problem}: workers on one machine cannot share memory"
    return _warn(found, "use Linux, with /proc mounted: mount -t proc proc /proc")


def shm(size: Callable[[], int | None] = probes.shm_bytes) -> Outcome:
    """/dev/shm is large enough for torch's DataLoader."""
    number = size()
    if number is None:
        found = "there is none: worker processes of torch's DataLoader cannot run"
        return _warn(found, "on Linux: mount -t tmpfs -o size=1g tmpfs /dev/shm")
    found = f"{number / GIB:.2f} GiB"
    if number >= LITTLE_SHM:
        return Outcome("OK", found)
    found += ": worker processes of torch's DataLoader may die with a bus error"
    return _warn(found, "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm")


def port(error: Callable[[], str] = probes.port_error) -> Outcome:
    """Workers can connect to each other through loopback."""
    problem = error()
    if not problem:
        return Outcome("OK", "127.0.0.1 has a free port and can be reached")
    return _fail(f"127.0.0.1: {problem}; workers cannot connect to each other", "sudo ip link set lo up")


def docker(ask: Callable[[], probes.DockerFacts] = probes.docker) -> Outcome:
    """Workers can run in containers."""
    known, without = ask(), "workers cannot run in containers"
    if known.server:
        return Outcome("OK", f"server {known.server}")
    if not known.installed:
        return _warn(f"not installed: {without}", "sudo apt install docker.io docker-compose-v2")
    denied = "permission denied" in known.error.lower()
    repair = 'sudo usermod -aG docker "$USER", then log in again' if denied else "sudo systemctl start docker"
    return _warn(f"the server does not answer ({known.error}): {without}", repair)


def namespaces(
    has_ip: Callable[[], bool] = lambda: shutil.which("ip") is not None,
    allowed: Callable[[], bool] = probes.may_make_namespaces,
) -> Outcome:
    """Each worker can get its own network, whose links can be made slow."""
    without = "workers cannot get a network each (--link works without)"
    if not has_ip():
        return _warn(f"the command `ip` is missing: {without}", "sudo apt install iproute2")
    if not allowed():
        repair = "create them with sudo (in a container: docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN)"
        return _warn(f"not allowed for this user: {without}", repair)
    return Outcome("OK", "can be created: each worker can get a network")


def data(ask: Callable[[], probes.DataFacts | None] = probes.data_sets) -> Outcome:
    """The data sets on this machine; the folder in $SHOAL_DATA exists."""
    known = ask()
    if known is None:
        return _warn("cannot be searched for until torch can be imported", INSTALL)
    if known.missing_folder:
        found = f"$SHOAL_DATA is {known.missing_folder}, which does not exist: only digits can be loaded"
        return _warn(found, f"mkdir -p {known.missing_folder}, or unset SHOAL_DATA")
    if "digits" not in known.here:
        return _fail("digits is missing from the package", f"{INSTALL} --force-reinstall --no-deps")
    fetchable = f"; `shoal data fetch` gets: {', '.join(known.absent)}" if known.absent else ""
    return Outcome("OK", f"here: {', '.join(known.here)}{fetchable}")


def folder(
    here: Callable[[], Path] = Path.cwd,
    error: Callable[[Path], str] = probes.write_error,
    free: Callable[[Path], int] = probes.free_bytes,
) -> Outcome:
    """The folder of runs can be written, and has space."""
    runs = here() / "runs"
    place = runs if runs.is_dir() else here()
    shown, problem = probes.with_tilde(place), error(place)
    if problem:
        repair = "cd to a folder of your own, or shoal train --runs-dir ~/runs …"
        return _fail(f"{shown} cannot be written: {problem}", repair)
    found = f"{shown} can be written, {free(place) / GIB:.1f} GiB free"
    if free(place) >= LITTLE_DISK:
        return Outcome("OK", found)
    return _warn(f"{found}: checkpoints may fill it", "shoal train --runs-dir FOLDER_WITH_SPACE …")


_ALL = (system, python, torch, cuda, cores, memory, memfd, shm, port, docker, namespaces, data, folder)
CHECKS: dict[str, Callable[[], Outcome]] = {
    "/dev/shm" if each is shm else each.__name__: each for each in _ALL
}


def checks(table: dict[str, Callable[[], Outcome]] = CHECKS) -> list[Check]:
    """Every check of the table, in order. If a check itself raises an error, that is a warning."""
    found: list[Check] = []
    for name, check in table.items():
        try:
            outcome = check()
        except Exception as error:
            outcome = _warn(f"could not be examined: {type(error).__name__}: {error}", "report this as a bug")
        found.append(Check(name, *outcome))
    return found


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
