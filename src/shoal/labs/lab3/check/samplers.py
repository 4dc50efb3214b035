"""Check how the student's samplers divide the data set, by our own copy of `check_sampler.py`."""

from importlib import import_module
from typing import Any

from shoal.labs.check.fault import Fault
from shoal.labs.lab3.solution.check_sampler import found

CASES = ((1000, 4), (1001, 3))
"""Samples and nodes: divided evenly, and not."""


def sampler_faults(name: str, partition: bool) -> list[Fault]:
    """What is wrong in the first case in which anything is."""
    kind = getattr(import_module("sampler"), name)
    for num_samples, nodes in CASES:
        wrong = found(kind, num_samples, nodes, partition)
        if wrong:
            return [
                Fault("sampler", {"nodes": nodes, "samples": num_samples}),
                *(Fault(f"sampler_{key}", _shown(values)) for key, values in wrong),
            ]
    return []


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, list) else value for key, value in values.items()}
