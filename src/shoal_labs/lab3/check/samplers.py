"""Check how the student's samplers divide the data set, by our own copy of `check_sampler.py`.

Each task is tested with the others right: where `set_epoch` or `__len__` is wrong, the division is tested with ours.
"""

from typing import Any

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.student import with_method, written
from shoal_labs.lab3.solution.check_sampler import Found, found, sampler_of
from shoal_labs.lab3.solution.sampler import MySampler

CASES = ((1000, 4), (1001, 3))
"""Samples and nodes: divided evenly, and not."""


def sampler_faults(task: str) -> list[Fault]:
    """What is wrong with one task of a sampler; an error of an earlier case is not repeated."""
    name = "MyRandomSampler" if task == "random_sampling" else "MySampler"
    kind = with_method(written("sampler", name), "__iter__")
    if task == "set_epoch":
        return epoch_faults(kind)
    if task == "length":
        return in_cases(lambda *case: length_found(kind, *case))
    given = {"set_epoch": _set_epoch} if failing(epoch_faults, kind) else {}
    given |= (
        {"__len__": MySampler.__len__} if any(failing(length_found, kind, *case) for case in CASES) else {}
    )
    mended = type(kind.__name__, (kind,), given) if given else kind
    division = task == "random_partition"
    return in_cases(
        lambda *case: [each for each in found(mended, *case, partition=division) if each[0] != "length"]
    )


def in_cases(find: Any) -> list[Fault]:
    """The faults of each case, after a head with its sizes."""
    named, faults = set[str](), list[Fault]()
    for num_samples, nodes in CASES:
        wrong = [each for each in find(num_samples, nodes) if each[0] not in named]
        named.update(key for key, _ in wrong)
        if wrong:
            faults.append(fault("sampler", nodes=nodes, samples=num_samples))
            faults += [Fault(f"sampler_{key}", _shown(values)) for key, values in wrong]
    return faults


def epoch_faults(kind: Any) -> list[Fault]:
    """Does set_epoch change the state of its own sampler, and of no other?"""
    if not hasattr(kind, "set_epoch"):
        return [fault("sampler_method", name=kind.__name__, method="set_epoch")]
    one, other = (sampler_of(kind, *CASES[0], rank=0) for _ in range(2))
    states = [str(vars(one))]
    for epoch in (5, 6):
        before, shared = str(vars(other)), str(vars(kind))
        one.set_epoch(epoch)
        states.append(str(vars(one)))
        if (str(vars(other)), str(vars(kind))) != (before, shared):
            return [fault("sampler_shared_epoch")]
    return [] if len(set(states)) == len(states) else [fault("sampler_same_epoch")]


def length_found(kind: Any, num_samples: int, nodes: int) -> Found:
    """Is `__len__` an even share, rounded up for all nodes or for the first ones, and what `__iter__` gives?"""
    if "__len__" not in dir(kind):
        return [("method", {"name": kind.__name__, "method": "__len__"})]
    said = [len(sampler_of(kind, num_samples, nodes, rank)) for rank in range(nodes)]
    shares = [len(range(rank, num_samples, nodes)) for rank in range(nodes)]
    if sorted(said) not in (sorted(shares), [max(shares)] * nodes):
        return [("length_share", {"said": said, "shares": shares})]
    try:
        wrong = found(kind, num_samples, nodes, partition=True)
    except Exception:  # __iter__ fails: its task says so
        return []
    return wrong if [key for key, _ in wrong] == ["length"] else []


def failing(test: Any, *args: Any) -> bool:
    """Whether a test finds something wrong or cannot be made."""
    try:
        return bool(test(*args))
    except Exception:
        return True


def _set_epoch(self: Any, epoch: int) -> None:
    self.epoch = epoch


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, list) else value for key, value in values.items()}
