"""What must be the same on every worker before they start: versions, and every setting that affects the result."""

import sys

import torch

from shoal import __version__
from shoal.config.schema import RunConfig
from shoal.config.write import flat, literal
from shoal.events.folder import RunFolder

MAY_DIFFER = (
    "device",
    "threads",
    "data.dir",
    "output.",
    "launch.workers",
    "launch.launcher",
    "launch.group",
    "launch.timeout",
)
"""Where a worker computes and where it reads its data may differ; rank 0 alone decides where the run is written. The
group itself compares the number of workers."""


def facts_of(config: RunConfig, resumed: RunFolder | None = None) -> dict[str, str]:
    """Facts by name. The first one that differs between two workers is shown from both sides."""
    # Another number of threads rounds differently.
    invariant = config.train.reduction == "invariant"
    may_differ = tuple(path for path in MAY_DIFFER if not (invariant and path in ("device", "threads")))
    settings = {
        path: literal(value)
        for path, value in flat(config).items()
        if value is not None and not path.startswith(may_differ)
    }
    return {
        "shoal": __version__,
        "torch": torch.__version__.split("+")[0],
        "python": ".".join(map(str, sys.version_info[:2])),
        "--resume": "given" if resumed else "not given",
        **settings,
    }
