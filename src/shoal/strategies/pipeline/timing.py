"""The ideal timeline of a schedule, and the messages that are placed on it.

The timeline says when each action starts and ends if stages wait for nothing but their inputs.

A computing action starts when the one before it in its row has ended and its input has arrived. A message arrives
`activation` or `gradient` seconds after its producer has ended; it occupies no stage, and messages do not delay each
other. So the makespan is a lower bound for any machine on which the actions take these times.

A message stands in its rows at the moment at which the ideal timeline has produced it: the sender sends at once, the
receiver posts the receive before the first action that starts no earlier. In this one order for all stages a send and
its receive stand together, so nothing deadlocks; each row is one stage's part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import ALL, MESSAGES, Action, ActionKind, Row, live_activations


@dataclass(frozen=True)
class StageTimes:
    """How long each action takes on one stage, in any unit; by default backward is twice the forward."""

    forward: float = 1.0
    backward: float = 2.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    """Of one micro-batch."""
    backward_weight_all: float | None = None
    """Of all micro-batches at once; without it, the sum of all single ones."""
    update: float = 0.0
    activation: float = 0.0
    """From the end of a forward here to the arrival of its output at the next stage."""
    gradient: float = 0.0
    """From the end of a backward here to the arrival of its gradient at the previous stage."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"{each.name} of a stage must be a time ≥ 0, got {value}")

    def of(self, action: Action, num_microbatches: int) -> float:
        """How long a computing action takes."""
        if action.microbatch == ALL:
            every = self.backward_weight_all
            return num_microbatches * self.backward_weight if every is None else every
        return {
            ActionKind.FORWARD: self.forward,
            ActionKind.BACKWARD: self.backward,
            ActionKind.BACKWARD_INPUT: self.backward_input,
            ActionKind.BACKWARD_WEIGHT: self.backward_weight,
            ActionKind.UPDATE: self.update,
        }[action.kind]


class TimedAction(NamedTuple):
    """A computing action with its start and its end."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The computing actions of every stage, in order, and the figures that follow from them."""

    rows: tuple[tuple[TimedAction, ...], ...]

    @cached_property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return max((row[-1].end for row in self.rows if row), default=0.0)

    def busy(self, stage: int) -> float:
        """The time that a stage computes."""
        return sum(each.end - each.start for each in self.rows[stage])

    @property
    def bubble(self) -> float:
        """The fraction of all stages' time in which they wait: 1 − busy / (stages · makespan)."""
        if not self.makespan:
            return 0.0
        return 1 - sum(map(self.busy, range(len(self.rows)))) / (len(self.rows) * self.makespan)

    def peak_live(self, stage: int) -> int:
        """The largest number of micro-batches whose activations a stage holds at once."""
        return max(live_activations(tuple(each.action for each in self.rows[stage])), default=0)


UNIT_TIMES = StageTimes()
"""F = I = W = 1, B = 2, messages take no time."""


def timeline(rows: Sequence[Row], times: StageTimes | Sequence[StageTimes] = UNIT_TIMES) -> Timeline:
    """The ideal timeline of the rows of a schedule. Times are the same for all stages, or one for each.

    >>> from shoal.strategies.pipeline.schedules import build
    >>> line = timeline(build("1f1b", stages=4, microbatches=8).rows)
    >>> line.makespan, round(line.bubble, 3), [line.peak_live(stage) for stage in range(4)]
    (33.0, 0.273, [4, 3, 2, 1])
    """
    each_times = [times] * len(rows) if isinstance(times, StageTimes) else list(times)
    if len(each_times) != len(rows):
        raise ConfigError(f"{len(rows)} stages need {len(rows)} StageTimes, got {len(each_times)}")
    queues = [[action for action in row if not action.kind.is_message] for row in rows]
    num_microbatches = len({action.microbatch for queue in queues for action in queue} - {ALL})
    done: list[list[TimedAction]] = [[] for _ in rows]
    # The moment at which a stage has received a message; the outer stages start without.
    arrivals: dict[tuple[ActionKind, int, int], float] = {}
    advanced = True
    while advanced:
        advanced = False
        for stage, queue in enumerate(queues):
            while len(done[stage]) < len(queue):
                action, took = queue[len(done[stage])], each_times[stage]
                received, sent = MESSAGES.get(action.kind, (None, None))
                ready = 0.0
                if received is not None and 0 <= stage + received.step_to_partner < len(rows):
                    ready = arrivals.get((received, stage, action.microbatch))
                if ready is None:
                    break
                start = max(ready, done[stage][-1].end if done[stage] else 0.0)
                end = start + took.of(action, num_microbatches)
                done[stage].append(TimedAction(action, start, end))
                if sent is not None:
                    delay = took.activation if sent is ActionKind.SEND_ACTIVATION else took.gradient
                    arrivals[sent.counterpart, stage + sent.step_to_partner, action.microbatch] = end + delay
                advanced = True
    for stage, queue in enumerate(queues):
        if len(done[stage]) < len(queue):
            action = queue[len(done[stage])]
            raise ConfigError(
                f"stage {stage} deadlocks in {action}: its input depends on a later action of the same row"
            )
    return Timeline(tuple(map(tuple, done)))


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
        (timed.end, stage, sent.value, timed.action.microbatch)
        for stage, row in enumerate(ideal.rows)
        for timed in row
        if timed.action.kind in MESSAGES
        for sent in MESSAGES[timed.action.kind][1:]
        if 0 <= stage + sent.step_to_partner < len(rows)
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
