"""Which ways no other way beats: the Pareto front of time and something that should be large."""

from collections.abc import Mapping


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names of the points (time, value) such that no other has less time and at least the value; by time.

    >>> pareto_front({"none": (80.0, 0.94), "int8": (30.0, 0.94), "sign": (6.0, 0.93), "topk": (30.0, 0.90)})
    ['sign', 'int8']
    """
    front: list[str] = []
    best = float("-inf")
    for name, (_, value) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if value > best:
            front.append(name)
            best = value
    return front
