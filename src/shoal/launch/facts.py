"""What must be the same on every worker before they start: versions, and every setting that decides the result."""

import sys

import torch

from shoal import __version__
from shoal.config.schema import RunConfig
from shoal.config.write import to_toml


def facts_of(config: RunConfig) -> dict[str, str]:
    """Facts by name; the first that differs between two workers is shown from both sides.

    Where a worker computes and where it looks for data is its own affair: those settings may differ.
    """
    own = {"device", "threads", "data.dir", "output.dir"}
    facts = {
        "shoal": __version__,
        "torch": torch.__version__.split("+")[0],
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    section = ""
    for line in to_toml(config).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line:
            key, _, value = line.partition(" = ")
            if section + key not in own:
                facts[section + key] = value
    return facts
