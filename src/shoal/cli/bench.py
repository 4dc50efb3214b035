"""`shoal bench`: measurements that a user can repeat. Today: collectives."""

from collections.abc import Sequence

from shoal.cli import text
from shoal.cli.options import Options, no_more, split_options
from shoal.errors import ConfigError, unknown

HELP = """Usage: shoal bench collectives [-b SIZE] [-e SIZE] [-f FACTOR] [--op NAME] [--group LIST] [--algorithm LIST]
       [--workers N] [--seconds S] [--json | --csv]

Groups take turns at one collective within one run; medians of single calls, every result checked.

  -b, -e, -f       sizes from -b (1K) to -e (64M), each -f (4) times the one before
  --op             all_reduce (default), all_gather, reduce_scatter, broadcast, reduce
  --group          of shm, gloo, gloo+checked, mpi; default shm,gloo. gloo is torch's own, gloo+checked what we ship
  --algorithm      our algorithms on those groups, besides: ring, tree, … (`shoal explain` lists them)
  --workers        how many (2)
  --seconds        time for each size (2)
  --json, --csv    the rows as JSON or as CSV, instead of a table

The table has the columns of nccl-tests, in which others give their numbers. time: the median of single calls; algbw:
bytes over time; busbw: the same, times the part of the bytes that has to go from worker to worker; #wrong: elements
that were not right. `memory` is no group: each worker copies as many bytes, which no all-reduce can beat."""

BENCHMARKS = ("collectives",)
UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
VALUES = ("-b", "-e", "-f", "--op", "--group", "--algorithm", "--workers", "--seconds")


def run(argv: Sequence[str]) -> int:
    """Find the benchmark and run it."""
    options, words = split_options(argv, switches=("--help", "-h", "--json", "--csv"), values=VALUES)
    if options.has("--help", "-h") or not words:
        text.page(HELP)
        return 0
    name, *rest = words
    if name not in BENCHMARKS:
        raise ConfigError(unknown("benchmark", name, BENCHMARKS))
    no_more(rest, "shoal bench collectives --help")
    if options.has("--json") and options.has("--csv"):
        raise ConfigError("--json and --csv are two forms of one table", "Leave one of them out.")

    from shoal.bench.collectives import BenchSettings, start
    from shoal.comm.algorithms import ALGORITHMS

    for algorithm in _names(options.value("--algorithm") or ""):
        if algorithm not in ALGORITHMS:  # now, and not by a worker
            raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    start(
        BenchSettings(
            op=options.value("--op") or "all_reduce",
            groups=_names(options.value("--group") or "shm,gloo"),
            algorithms=_names(options.value("--algorithm") or ""),
            workers=int(_number(options, "--workers", "2", whole=True)),
            begin=_num_bytes(options.value("-b") or "1K"),
            end=_num_bytes(options.value("-e") or "64M"),
            factor=int(_number(options, "-f", "4", whole=True)),
            seconds=_number(options, "--seconds", "2", whole=False),
            form="json" if options.has("--json") else "csv" if options.has("--csv") else "table",
        )
    )
    return 0


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name for name in listed.split(",") if name)


def _number(options: Options, name: str, default: str, whole: bool) -> float:
    given = options.value(name) or default
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if number <= 0 or (whole and not number.is_integer()):
        raise ConfigError(f"{name} must be a {'whole ' if whole else ''}number above 0, not '{given}'")
    return number


def _num_bytes(given: str) -> int:
    """Bytes of a size such as 64M.

    >>> _num_bytes("1K"), _num_bytes("100")
    (1024, 100)
    """
    digits, unit = (given[:-1], UNITS[given[-1].upper()]) if given[-1:].upper() in UNITS else (given, 1)
    if not digits.isdigit():
        raise ConfigError(f"a size is written like 1024, 64K or 8M, not '{given}'")
    return int(digits) * unit
