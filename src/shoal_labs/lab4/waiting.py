"""What stages of a pipeline wait for: a neighbour that has not sent yet, or a message on its way.

A receive is blocked until its message has arrived. Until the neighbour posts the send, the stage is idle; after that,
the message is under way. The n-th message of a stage in a step is the n-th in its row of the schedule, which names
neighbour and micro-batch. In a collective all wait for the last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shoal.kit.runs import WARM_UP_STEPS, RankShares, Span, StepRecord
from shoal.kit.strategies import Action, Row

MESSAGES = ("send", "recv")


def divided_by_sender(
    shares: Sequence[RankShares], ranks: Sequence[Sequence[StepRecord]], rows: Sequence[Row]
) -> list[RankShares]:
    """The shares of all stages, with the time in exchanges divided into waiting for a sender and moving."""
    blocked_ns, idle_ns = [0] * len(rows), [0] * len(rows)
    for records in list(zip(*ranks, strict=True))[WARM_UP_STEPS:]:
        for stage, blocked, idle in _waits([record.spans or () for record in records], rows):
            blocked_ns[stage] += blocked
            idle_ns[stage] += idle
    return [
        _redivided(each, idle / blocked if blocked else 0.0)
        for each, idle, blocked in zip(shares, idle_ns, blocked_ns, strict=True)
    ]


def _redivided(share: RankShares, idle: float) -> RankShares:
    exchange_s = share.move_s + share.wait_s
    return replace(share, move_s=exchange_s * (1 - idle), wait_s=exchange_s * idle)


def _waits(spans: Sequence[Sequence[Span]], rows: Sequence[Row]) -> Iterator[tuple[int, int, int]]:
    """Stage, time blocked, and the idle part of it, for every call of one step."""
    messages = [_messages(own, row) for own, row in zip(spans, rows, strict=True)]
    collectives = [_calls(own, messages=False) for own in spans]
    for stage, own in enumerate(messages):
        for action, call in own.items():
            partner = Action(action.kind.counterpart, action.microbatch)
            sent = messages[stage + action.kind.step_to_partner].get(partner)
            ready_ns = sent[0].start_ns if sent and not action.kind.is_send else 0
            yield stage, *_blocked(call, ready_ns)
    for meeting in zip(*collectives, strict=False):
        last_ns = max(call[0].start_ns for call in meeting)
        for stage, call in enumerate(meeting):
            yield stage, *_blocked(call, last_ns)


def _messages(spans: Sequence[Span], row: Row) -> dict[Action, list[Span]]:
    posted = [action for action in row if action.kind.is_message]
    return dict(zip(posted, _calls(spans, messages=True), strict=False))


def _calls(spans: Sequence[Span], messages: bool) -> list[list[Span]]:
    """The spans of each call, in the order in which the calls were made."""
    calls: dict[int, list[Span]] = {}
    for span in spans:
        if span.group and (span.name in MESSAGES) == messages:
            calls.setdefault(span.sequence, []).append(span)
    return [calls[sequence] for sequence in sorted(calls)]


def _blocked(call: Sequence[Span], ready_ns: int) -> tuple[int, int]:
    """How long a call was blocked, and how long of that before the other side was ready."""
    blocked = sum(span.duration_ns for span in call)
    return blocked, sum(min(max(ready_ns - span.start_ns, 0), span.duration_ns) for span in call)
