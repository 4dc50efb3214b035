"""What must be the same on every worker before they start: versions, and every setting that affects the result."""

import sys

import torch

from shoal import __version__
from shoal.config.may_differ import DECIDES_BITS, may_differ
from shoal.config.schema import RunConfig
from shoal.config.write import flat, literal
from shoal.events.folder import RunFolder


def facts_of(config: RunConfig, resumed: RunFolder | None = None) -> dict[str, str]:
    """Facts by name. The first one that differs between two workers is shown from both sides."""
    must_agree = DECIDES_BITS if config.train.reduction == "invariant" else ()
    settings = {
        path: literal(value)
        for path, value in flat(config).items()
        if value is not None and (path in must_agree or not may_differ(path, "workers"))
    }
    return {
        "shoal": __version__,
        "torch": torch.__version__.split("+")[0],
        "python": ".".join(map(str, sys.version_info[:2])),
        "--resume": "given" if resumed else "not given",
        **settings,
    }
