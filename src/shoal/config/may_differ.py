"""Which settings may differ, and where: one table for resumed runs, compared runs, and the workers of a run."""

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal

Where = Literal["resumed", "compared", "workers"]
"""A resumed run and the run before it; runs of the same task in a comparison; two workers of one run."""

_RESUMED: tuple[Where, ...] = ("resumed",)
_COMPARED: tuple[Where, ...] = ("compared",)
_WORKERS: tuple[Where, ...] = ("workers",)
_BOTH = _RESUMED + _COMPARED
_EVERYWHERE = _BOTH + _WORKERS

MAY_DIFFER: dict[str, Collection[Where]] = {
    # Where a run computes, and where it reads and writes.
    **dict.fromkeys(("device", "threads", "data.dir"), _EVERYWHERE),
    **dict.fromkeys(("output.trace", "output.logger"), _EVERYWHERE),
    **dict.fromkeys(("output.dir", "output.name"), _COMPARED + _WORKERS),
    "checkpoint.*": _BOTH,
    # How workers divide the work. The group itself compares their number.
    **dict.fromkeys(("launch.workers", "launch.launcher", "launch.group", "launch.timeout"), _WORKERS),
    **dict.fromkeys(("launch.*", "mesh", "pipeline.*", "tensor.*", "sync.*", "exchange.*"), _BOTH),
    "strategy.*": _RESUMED,
    **dict.fromkeys(("train.balance", "train.micro_batch"), _BOTH),
    # How long a run is, and what it needs: a checkpoint holds the state of one machine.
    **dict.fromkeys(
        ("train.epochs", "train.steps", "train.on_nonfinite", "train.metrics", "stop.patience", "memory.*"),
        _RESUMED,
    ),
    # How the same task may be computed from the start.
    **dict.fromkeys(("engine", "partition.*", "train.reduction", "train.test", "optimizer.fast"), _COMPARED),
}
"""By path; all other settings decide *what* is computed."""

DECIDES_BITS = ("train.micro_batch", "device", "threads")
"""With `--reduction invariant` the bits depend on these, so a resumed run and the workers of a run have them alike."""


def may_differ(path: str, where: Where) -> bool:
    """Whether a setting may differ there.

    >>> may_differ("launch.link", "compared"), may_differ("launch.link", "workers")
    (True, False)
    """
    return any(fnmatchcase(path, each) and where in places for each, places in MAY_DIFFER.items())
