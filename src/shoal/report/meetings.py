"""Which calls of different workers belong together, when each worker arrived, and how long it waited."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from shoal.errors import ConfigError
from shoal.events.spans import NOTED, Span

MESSAGES = ("send", "recv")
"""Calls between two members. All members of a group make every other call, in the same order."""

ANY_MESSAGES = "messages"
"""In the meeting of messages whose other end is unknown."""
Meeting = tuple[object, ...]
"""Identifies calls of different members that belong together."""


def event_files(folder: Path) -> list[tuple[int, Path]]:
    """The event files of a run by rank; an error if there are none."""
    found = [
        (re.fullmatch(r"events\.rank(\d+)\.jsonl", path.name), path) for path in folder.glob("events.rank*")
    ]
    files = sorted((int(match[1]), path) for match, path in found if match)
    if not files:
        raise ConfigError(f"{folder} is not a run folder: it has no event files (events.rank0.jsonl, …)")
    return files


def members_of(group: str, everyone: Sequence[int]) -> Sequence[int]:
    """The ranks in a group, from its name: each bracket lists the members of a smaller group.

    >>> members_of("world[1,2,3][0,2]", range(4))
    [1, 3]
    """
    members = everyone
    for listed in re.findall(r"\[([\d,]+)\]", group):
        inside = [int(place) for place in listed.split(",")]
        members = [members[place] for place in inside if place < len(members)]
    return members


def meetings(
    rank: int, steps: Mapping[int, Sequence[Span]], everyone: Sequence[int], recorded: Collection[int]
) -> Iterator[tuple[Meeting, Span]]:
    """Every span of a rank's calls, by step, with the meeting that the call belongs to.

    Collectives match by their order within a step, and so do messages whose sender and receiver are both known and
    among the ranks with `recorded` calls. Other messages between two collectives are one meeting: those of older
    versions, which did not record the other member, and those with a parameter server, which makes no steps.
    """
    for number, spans in steps.items():
        counts: dict[Meeting, int] = {}
        meeting: Meeting = ()
        for span in sorted(spans, key=lambda span: (span.group, span.sequence)):
            if span.name in NOTED:
                yield (rank, span.sequence), span
                continue
            if span.issues_call:  # the span of its wait follows, with the same meeting
                kind: Meeting = (span.group, "all")
                other = _partner(rank, span, everyone) if span.name in MESSAGES else None
                if other in recorded:
                    kind = (span.group, *((rank, other) if span.name == "send" else (other, rank)))
                if span.name in MESSAGES and other not in recorded:
                    meeting = (number, span.group, ANY_MESSAGES, counts.get(kind, 0))
                else:
                    counts[kind] = counts.get(kind, 0) + 1
                    meeting = (number, *kind, counts[kind])
            yield meeting, span


def _partner(rank: int, message: Span, everyone: Sequence[int]) -> int | None:
    """The rank at the other end of a message; None if it is unknown."""
    members = members_of(message.group, everyone)
    if message.peer >= 0:
        return members[message.peer] if message.peer < len(members) else None
    others = [member for member in members if member != rank]
    return others[0] if len(others) == 1 else None


def arrivals(ranks: Mapping[int, Sequence[tuple[Meeting, Span]]]) -> dict[Meeting, dict[int, int]]:
    """When each member arrived at each meeting."""
    found: dict[Meeting, dict[int, int]] = {}
    for rank, met in ranks.items():
        for meeting, span in met:
            members = found.setdefault(meeting, {})
            members[rank] = min(members.get(rank, span.start_ns), span.start_ns)
    return found


def waiting_ns(span: Span, last_ns: int) -> int:
    """The part of a call's span before the last member arrived.

    >>> span = Span(0, "all_reduce", "wait", "main", start_ns=50, end_ns=100, group="world", sequence=1)
    >>> waiting_ns(span, 20), waiting_ns(span, 80), waiting_ns(span, 120)
    (0, 30, 50)
    """
    return min(max(last_ns - span.start_ns, 0), span.duration_ns)
