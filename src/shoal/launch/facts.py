"""What must be the same on every worker before they start: versions, and every setting that decides the result."""

import sys

import torch

from shoal import __version__
from shoal.config.schema import RunConfig
from shoal.config.write import to_toml
from shoal.events.folder import RunFolder

OWN = ("device", "threads", "data.dir", "output.", "launch.workers", "launch.launcher", "launch.group")
"""Where a worker computes and where it looks for data is its own affair; where the run goes is rank 0's. How many
workers there are, the group itself compares."""


def facts_of(config: RunConfig, resumed: RunFolder | None = None) -> dict[str, str]:
    """Facts by name; the first that differs between two workers is shown from both sides."""
    facts = {
        "shoal": __version__,
        "torch": torch.__version__.split("+")[0],
        "python": ".".join(map(str, sys.version_info[:2])),
        "--resume": "given" if resumed else "not given",
    }
    section = ""
    for line in to_toml(config).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line:
            key, _, value = line.partition(" = ")
            if not (section + key).startswith(OWN):
                facts[section + key] = value
    return facts
