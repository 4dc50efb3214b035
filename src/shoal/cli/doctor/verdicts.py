"""Which node or link is slow, from measurements of all pairs: pure functions.

A value is slow if it is less than half of the median of the others. Noise only makes a measurement slower, so a
suspect is measured again, alone: it is slow if every try was, and undecided if most were.
"""

import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

SLOW = 0.5
"""The part of the others' median below which a value is slow."""
FEWEST_NODES = 3
"""A node is slow in comparison with links among the others, so there must be two others."""

Key = TypeVar("Key", bound=Hashable)
Link = tuple[int, int]
"""From a node, to a node."""
Way = Literal["to and from", "to", "from"]


class Verdict(NamedTuple):
    """On a slow value."""

    value: float
    others: float
    """The median of the others."""
    sure: bool
    """Whether every one of several tries was slow."""


@dataclass(frozen=True)
class Slow:
    """A slow node, in these ways, or a slow link."""

    node: int | None
    way: Way
    links: tuple[Link, ...]
    verdict: Verdict


def slow_values(tries: Mapping[Key, Sequence[float]]) -> dict[Key, Verdict]:
    """Of values of any kind the slow ones.

    >>> slow_values({"a": [9.0], "b": [10.0], "c": [1.0, 2.0, 1.5]})
    {'c': Verdict(value=1.5, others=9.5, sure=True)}
    """
    found: dict[Key, Verdict] = {}
    for key, values in tries.items():
        rest = [max(other) for name, other in tries.items() if name != key]
        if values and rest and (verdict := _verdict(values, statistics.median(rest))):
            found[key] = verdict
    return found


def slow_links(tries: Mapping[Link, Sequence[float]]) -> list[Slow]:
    """Slow nodes, and slow links between nodes that are not slow; links that were not measured are absent."""
    nodes = sorted({node for link in tries for node in link})
    found: list[Slow] = []
    for node in nodes if len(nodes) >= FEWEST_NODES else ():
        apart = [max(values) for link, values in tries.items() if node not in link]
        found += _slow_node(tries, node, statistics.median(apart)) if apart else []
    explained = {link for each in found for link in each.links}
    rest = {link: values for link, values in tries.items() if link not in explained}
    return found + [Slow(None, "to", (link,), verdict) for link, verdict in slow_values(rest).items()]


def _slow_node(tries: Mapping[Link, Sequence[float]], node: int, others: float) -> list[Slow]:
    """The verdict on a node: slow if all its links in one direction or in both are, and it has several."""
    ways: dict[Way, list[Link]] = {
        "to": [link for link in tries if link[1] == node],
        "from": [link for link in tries if link[0] == node],
    }
    slow: dict[Way, list[Verdict]] = {}
    for way, links in ways.items():
        verdicts = [_verdict(tries[link], others) for link in links]
        if len(links) > 1 and all(verdicts):
            slow[way] = [verdict for verdict in verdicts if verdict]
    if not slow:
        return []
    both = [verdict for each in slow.values() for verdict in each]
    named = tuple(link for way in slow for link in ways[way])
    # Some links of the node, measured again, stand for all.
    sure = any(verdict.sure for verdict in both) and all(max(tries[link]) < SLOW * others for link in named)
    way: Way = "to and from" if len(slow) == len(ways) else next(iter(slow))
    value = statistics.median(verdict.value for verdict in both)
    return [Slow(node, way, named, Verdict(value, others, sure))]


def _verdict(tries: Sequence[float], others: float) -> Verdict | None:
    """The verdict if most tries were slow; one try alone is never sure."""
    num_slow = sum(value < SLOW * others for value in tries)
    if 2 * num_slow <= len(tries):
        return None
    return Verdict(statistics.median(tries), others, len(tries) > 1 and num_slow == len(tries))


def suspects(found: Collection[Slow], most: int) -> list[Link]:
    """The links to measure again, the slowest first; of a slow node one of each direction stands for all."""
    ordered = sorted(found, key=lambda each: each.verdict.value / each.verdict.others)
    links = [link for each in ordered for link in (each.links[0], each.links[-1])]
    return list(dict.fromkeys(links))[:most]
