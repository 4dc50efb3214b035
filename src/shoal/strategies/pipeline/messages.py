"""Adds the messages to the rows of a schedule: one order for all stages, so that nothing deadlocks.

A message is placed at the moment at which the ideal timeline has produced it: the sender sends at once, the receiver
posts the receive before the first action that starts no earlier. In that one order a send and its receive stand
together; each row is one stage's part of it.
"""

from collections.abc import Sequence

from shoal.strategies.pipeline.schedule import Action, ActionKind, Row
from shoal.strategies.pipeline.timing import timeline

SENT = {
    ActionKind.FORWARD: ActionKind.SEND_ACTIVATION,
    ActionKind.BACKWARD: ActionKind.SEND_GRADIENT,
    ActionKind.BACKWARD_INPUT: ActionKind.SEND_GRADIENT,
}
"""What a stage sends when it has computed an action."""


def with_messages(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with every send and receive.

    >>> from shoal.strategies.pipeline.schedule import parse_row
    >>> for row in with_messages([parse_row("F0 F1 B0 B1"), parse_row("F0 B0 F1 B1")]):
    ...     print(*row)
    F0 sA0 F1 sA1 rG0 B0 rG1 B1
    rA0 F0 rA1 B0 sG0 F1 B1 sG1
    """
    ideal = timeline(rows)
    messages = sorted(
        (timed.end, stage, SENT[timed.action.kind].value, timed.action.microbatch)
        for stage, row in enumerate(ideal.rows)
        for timed in row
        if timed.action.kind in SENT and 0 <= stage + SENT[timed.action.kind].step_to_partner < len(rows)
    )
    # A message comes before the actions that start when it is sent: one of them may wait for it.
    entries: list[list[tuple[float, Action]]] = [[] for _ in rows]
    for moment, stage, name, microbatch in messages:
        kind = ActionKind(name)
        entries[stage].append((moment, Action(kind, microbatch)))
        entries[stage + kind.step_to_partner].append((moment, Action(kind.counterpart, microbatch)))
    for stage, row in enumerate(ideal.rows):
        entries[stage] += [(timed.start, timed.action) for timed in row]
        entries[stage].sort(key=lambda entry: entry[0])  # stable: at one moment messages come first
    return tuple(tuple(action for _, action in each) for each in entries)
