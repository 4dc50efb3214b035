"""The limits of a process's memory, and how near it is to them."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from shoal.events.file import Record

PROCESS, CGROUPS, MACHINE = Path("/proc/self"), Path("/sys/fs/cgroup"), Path("/proc/meminfo")


class Limit(NamedTuple):
    """A limit, and what counts against it."""

    name: str
    used: int
    limit: int


def nearest_limit() -> Record | None:
    """The limit of which the largest part is used; None if there is none, or the system does not say.

    Of the process the peak counts; of its GPU, its container and the machine the use at this moment.
    """
    try:
        found = [*_of_process(), *_of_containers(), *_of_machine(), *_of_gpu()]
    except (OSError, ValueError, KeyError):  # another system, or files of another form
        return None
    nearest = max(found, key=lambda each: each.used / each.limit, default=None)
    return None if nearest is None else nearest._asdict()


def sizes_in(path: Path, factor: int) -> dict[str, int]:
    """The sizes in a file whose lines are a name and a number."""
    lines = (line.replace(":", "").split() for line in path.read_text().splitlines())
    return {words[0]: factor * int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _of_process() -> Iterator[Limit]:
    status = sizes_in(PROCESS / "status", 1024)
    for name, kind, used in (
        ("ulimit -v", resource.RLIMIT_AS, status["VmPeak"]),
        ("ulimit -d", resource.RLIMIT_DATA, status["VmData"]),
    ):
        limit = resource.getrlimit(kind)[0]
        if limit > 0:  # no limit is -1
            yield Limit(name, used, limit)


def _of_containers() -> Iterator[Limit]:
    """Control groups of version 2; pages of files do not count, because the system can drop them."""
    own = (PROCESS / "cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    for folder in (CGROUPS / own, *(CGROUPS / own).parents):
        if not folder.is_relative_to(CGROUPS):
            return
        limit = folder / "memory.max"
        if limit.exists() and (text := limit.read_text().strip()).isdigit():
            used = sizes_in(folder / "memory.stat", 1)
            yield Limit("container", used["anon"] + used["shmem"], int(text))


def _of_machine() -> Iterator[Limit]:
    memory = sizes_in(MACHINE, 1024)
    yield Limit("machine", memory["MemTotal"] - memory["MemAvailable"], memory["MemTotal"])


def _of_gpu() -> Iterator[Limit]:
    if torch.cuda.is_initialized():
        yield Limit("GPU", torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1])
