"""All ways of averaging that the lab compares: the course's collectives, and our algorithms on messages alone."""

from shoal.comm.algorithms import ALGORITHMS
from shoal_labs.lab2 import averaging

COURSE = tuple(averaging.BRANCHES)
MESSAGES = tuple(f"by:{name}" for name in ALGORITHMS)
ALL = (*COURSE, *MESSAGES)


def exchange_of(branch: str) -> str:
    """What `--exchange` is given for a branch.

    >>> exchange_of("all_gather"), exchange_of("by:ring")
    ('shoal_labs.lab2.averaging:all_gather', 'by:ring')
    """
    return branch if branch in MESSAGES else f"{averaging.__name__}:{branch}"


def calls_of(branch: str) -> frozenset[str]:
    """The operations of a group that a branch says it uses."""
    return frozenset(("send", "recv") if branch in MESSAGES else averaging.CALLS[branch])
