"""Which workers see the same run folder: found out with a file that one makes and the others look for.

    rank      0  1  2  3          two machines with a disk each: ranks 0 and 1 see one folder, ranks 2 and 3 another
    keepers   0  0  2  2          the lowest rank on a disk is its *keeper*

The disks form a ring in the order of their keepers. What a worker writes is on its own disk, a copy on the next one.
If all workers share one disk, nothing is copied.
"""

import json
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shoal.comm.agree import gather_texts, share_text
from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.files import open_new


@dataclass(frozen=True)
class Disks:
    """The disk of each worker."""

    keepers: tuple[int, ...]
    """For each rank, the lowest rank that sees the same run folder."""
    hosts: tuple[str, ...]
    """The host name of each rank's machine."""

    @classmethod
    def one(cls, size: int) -> "Disks":
        """One disk that all workers share."""
        return cls((0,) * size, (platform.node(),) * size)

    @cached_property
    def ring(self) -> list[int]:
        """The keepers, each followed by the keeper of the next disk."""
        return sorted(set(self.keepers))

    @property
    def is_one(self) -> bool:
        """Whether all workers share one disk."""
        return len(self.ring) == 1

    def keeps(self, rank: int) -> bool:
        """Whether this worker is a keeper."""
        return self.keepers[rank] == rank

    def next_of(self, keeper: int) -> int:
        """The keeper of the next disk."""
        return self.ring[(self.ring.index(keeper) + 1) % len(self.ring)]

    def keep(self, rank: int, keeper: int) -> bool:
        """Whether the part of a worker belongs on a keeper's disk: its own, a copy, or of a run with more workers."""
        more = rank >= len(self.keepers)
        return more or keeper in (self.keepers[rank], self.next_of(self.keepers[rank]))

    def copier_of(self, rank: int) -> int:
        """The worker on the next disk that keeps a copy of this worker's part."""
        here, there = (
            [other for other, keeper in enumerate(self.keepers) if keeper == wanted]
            for wanted in (self.keepers[rank], self.next_of(self.keepers[rank]))
        )
        return there[here.index(rank) % len(there)]

    def turn_of(self, rank: int) -> int:
        """When a worker sends to the next disk: every second disk at once, and an odd last one alone."""
        position = self.ring.index(self.keepers[rank])
        return 2 if position == len(self.ring) - 1 and position % 2 == 0 else position % 2

    def name_of(self, rank: int) -> str:
        """A worker and its machine, for sentences."""
        return f"rank {rank} on {self.hosts[rank]}"


def find_disks(group: Group, folder: Path, make: Callable[[], object]) -> Disks:
    """Find out which workers see the same `folder`, a path on each; a collective.

    The lowest rank whose disk is not known makes a file, and all look for it; so there are as many rounds as disks. A
    keeper calls `make` first, for a folder that is not there yet. Its error is raised on all workers.
    """
    keepers, hosts = [-1] * group.size, [""] * group.size
    while -1 in keepers:
        keeper, said, name = keepers.index(-1), dict[str, str](), ""
        if group.rank == keeper:
            said = _made(folder, make)
        said = json.loads(share_text(group, json.dumps(said), keeper))
        if "error" in said:
            whose = f"rank {keeper} on {said['host']}: " if keeper else ""
            raise ConfigError(f"{whose}{said['error']}", said["hint"])
        name = said["name"]
        mark = "sees" if keepers[group.rank] < 0 and (folder / name).exists() else "-"
        answers = gather_texts(group, f"{mark} {platform.node()}")
        if group.rank == keeper:
            (folder / name).unlink(missing_ok=True)
        for rank, answer in enumerate(answers):
            sees, _, hosts[rank] = answer.partition(" ")
            if sees == "sees" or rank == keeper:
                keepers[rank] = keeper
    return Disks(tuple(keepers), tuple(hosts))


def _made(folder: Path, make: Callable[[], object]) -> dict[str, str]:
    """The name of a new file in the folder, or why there is none."""
    said = {"host": platform.node(), "name": f".disk.{secrets.token_hex(8)}.tmp"}
    try:
        make()
        open_new(folder / said["name"]).close()
    except ConfigError as error:
        return said | {"error": error.message, "hint": error.hint}
    except OSError as error:
        problem = f"cannot write the run folder {folder}: {error.strerror}"
        return said | {"error": problem, "hint": "Is the disk full, or read-only?"}
    return said
