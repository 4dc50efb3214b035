"""`shoal bench`: measurements that the user can repeat."""

from typing import Annotated

from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.config.kinds import Matching
from shoal.config.sections.values import Count, PositiveFloat
from shoal.errors import ConfigError, unknown

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
Size = Annotated[str, Matching(r"\d+[KMGkmg]?", "1024, 64K or 8M")]


def run(given: Given) -> int:
    """Measure collectives."""
    if given["--json"] and given["--csv"]:
        raise ConfigError("--json and --csv cannot be combined", "Leave one of them out.")

    from shoal.comm.algorithms import ALGORITHMS
    from shoal.launch.collectives import Settings, start

    for algorithm in given["--algorithm"]:
        if algorithm not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    start(
        Settings(
            op=given["--op"],
            groups=given["--group"],
            algorithms=given["--algorithm"],
            workers=given["--workers"],
            begin=_num_bytes(given["-b"]),
            end=_num_bytes(given["-e"]),
            factor=given["-f"],
            seconds=given["--seconds"],
            form="json" if given["--json"] else "csv" if given["--csv"] else "table",
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


COLLECTIVES = Command(
    "bench collectives",
    "Measure a collective on several groups, which take turns in one run; every result is checked.",
    run,
    flags=(
        Flag("-b", "Smallest size.", Size, "1K", "SIZE"),
        Flag("-e", "Largest size.", Size, "64M", "SIZE"),
        Flag("-f", "Factor between two sizes.", Count, 4),
        Flag(
            "--op",
            "all_reduce, all_gather, reduce_scatter, broadcast or reduce.",
            default="all_reduce",
            value="NAME",
        ),
        Flag(
            "--group",
            "Groups to measure: shm, gloo, gloo+checked, mpi. gloo is torch's own; gloo+checked is what shoal uses.",
            tuple[str, ...],
            ("shm", "gloo"),
        ),
        Flag(
            "--algorithm",
            "Also measure these algorithms on those groups: ring, tree, … (`shoal explain` lists them).",
            tuple[str, ...],
            (),
        ),
        Flag("--workers", "Number of workers.", Count, 2),
        Flag("--seconds", "Time for each size.", PositiveFloat, 2.0),
        Flag("--json", "Print the rows as JSON instead of a table.", bool, False),
        Flag("--csv", "Print the rows as CSV instead of a table.", bool, False),
    ),
    details=lambda: (
        "The table has the columns of nccl-tests. time: median of single calls. algbw: bytes divided by time. busbw: "
        "algbw times the fraction of the bytes that must move between workers. #wrong: elements with a wrong value. "
        "`memory` is not a group: each worker copies the same number of bytes, which no all-reduce can beat.",
    ),
)
COMMAND = Command(
    "bench",
    "Measure collectives: shared memory, gloo, MPI, our own algorithms.",
    commands={"collectives": COLLECTIVES},
    kind_of_command="benchmark",
)
