"""`shoal bench`: measurements that the user can repeat."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.cli.command import Command, CommandGroup, Given
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, Matching
from shoal.config.sections.values import Count, Seconds
from shoal.errors import ConfigError

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
Size = Annotated[str, Matching(r"[0-9]{1,12}[KMGkmg]?", "1024, 64K or 8M", "SIZE")]


@dataclass(frozen=True)
class CollectivesFlags(Flags):
    """What is measured, and how it is shown."""

    b: Size = "1K"
    """Smallest size."""
    e: Size = "64M"
    """Largest size."""
    f: Annotated[int, AtLeast(2)] = 4
    """Factor between two sizes."""
    op: str = "all_reduce"
    """all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter or all_to_all."""
    group: tuple[str, ...] = ()
    """shm, gloo, gloo+checked (as shoal uses it), nccl, mpi (default shm,gloo; on GPUs nccl,gloo)."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Whose memory is moved. With more workers than GPUs, gloo is measured in place of nccl."""
    algorithm: tuple[str, ...] = ()
    """Also measure these algorithms on those groups: ring, tree, … (`shoal explain` lists them)."""
    workers: Count = 2
    """Number of workers, at least 2 on a CPU."""
    seconds: Seconds = 2.0
    """Time for each size."""
    json: bool = False
    """Print the rows as JSON instead of a table."""
    csv: bool = False
    """Print the rows as CSV instead of a table."""


def run(given: Given[CollectivesFlags]) -> int:
    """Measure a collective on several groups, which take turns in one run; every result is checked.

    The table has the columns of nccl-tests. time: median of single calls. algbw: bytes divided by time. busbw: algbw
    times the fraction of the bytes that must move between workers. #wrong: elements with a wrong value. `memory` is not
    a group: each worker copies the same number of bytes, which no all-reduce can beat.
    """
    flags = given.flags
    if flags.json and flags.csv:
        raise ConfigError("--json and --csv cannot be combined", "Leave one of them out.")

    from shoal.measure_collectives.run import BenchSettings, start

    start(
        BenchSettings(
            op=flags.op,
            groups=flags.group,
            algorithms=flags.algorithm,
            workers=flags.workers,
            begin=_num_bytes(flags.b),
            end=_num_bytes(flags.e),
            factor=flags.f,
            seconds=flags.seconds,
            device=flags.device,
            form="json" if flags.json else "csv" if flags.csv else "table",
        )
    )
    return 0


def _num_bytes(size: str) -> int:
    """Bytes of a size such as 64M.

    >>> _num_bytes("1K"), _num_bytes("100")
    (1024, 100)
    """
    unit = UNITS.get(size[-1].upper(), 1)
    return int(size[:-1] if unit > 1 else size) * unit


COMMAND = CommandGroup(
    "bench",
    "Measure collectives: shared memory, gloo, NCCL, MPI, our own algorithms.",
    {"collectives": Command("bench collectives", run, CollectivesFlags)},
    kind="benchmark",
)
