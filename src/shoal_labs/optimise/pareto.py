"""Which ways no other way beats: the Pareto front of time and something that should be large."""

from collections.abc import Mapping, Sequence
from statistics import median

from shoal.kit.findings import by_rounds, first_higher, first_lower, typical


def pareto_front(times: Mapping[str, Sequence[float]], values: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of the ways that no other beats, by time. Times are given round by round, values run by run.

    A way beats another if it is certainly faster and not certainly worse, or certainly better and not certainly slower:
    the interval of the difference, pair by pair, leaves out zero. A way with an unknown interval is not on the front.

    >>> times = {"none": [80, 81, 79, 82], "int8": [30, 31, 30, 29], "sign": [6, 7, 6, 7], "once": [1]}
    >>> values = {"none": [0.93, 0.94, 0.95, 0.94], "int8": [0.94, 0.94, 0.95, 0.93], "sign": [0.3, 0.4, 0.2, 0.3]}
    >>> pareto_front(times, {**values, "once": [0.99]})
    ['sign', 'int8']
    """
    known = [name for name in times if all(typical(each[name]).basis != "none" for each in (times, values))]

    def faster(one: str, other: str) -> bool:
        return first_lower(by_rounds(times[one], times[other])) == "holds"

    def better(one: str, other: str) -> bool:
        return first_higher(by_rounds(values[one], values[other])) == "holds"

    def beats(one: str, other: str) -> bool:
        return (faster(one, other) and not better(other, one)) or (
            better(one, other) and not faster(other, one)
        )

    front = [name for name in known if not any(beats(other, name) for other in known)]
    return sorted(front, key=lambda name: median(times[name]))
