"""Check how the student's samplers divide the data set, by our own copy of `check_sampler.py`."""

from typing import Any

from shoal.labs.check.fault import Fault, fault
from shoal.labs.check.student import with_method, written
from shoal.labs.lab3.solution.check_sampler import found

CASES = ((1000, 4), (1001, 3))
"""Samples and nodes: divided evenly, and not."""
METHODS = ("__len__", "set_epoch")


def sampler_faults(name: str, partition: bool) -> list[Fault]:
    """What is wrong in each case; an error of an earlier case is not repeated."""
    kind = with_method(written("sampler", name), "__iter__")
    absent = [fault("sampler_method", name=name, method=each) for each in METHODS if not hasattr(kind, each)]
    if absent:
        return absent
    named, faults = set[str](), list[Fault]()
    for num_samples, nodes in CASES:
        wrong = [each for each in found(kind, num_samples, nodes, partition) if each[0] not in named]
        named.update(key for key, _ in wrong)
        if wrong:
            faults.append(fault("sampler", nodes=nodes, samples=num_samples))
            faults += [Fault(f"sampler_{key}", _shown(values)) for key, values in wrong]
    return faults


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, list) else value for key, value in values.items()}
