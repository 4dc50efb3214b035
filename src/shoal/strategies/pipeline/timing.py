"""The ideal timeline of a schedule: when each action starts and ends if stages wait for nothing but their inputs.

A computing action starts when the one before it in its row has ended and its input has arrived. A message arrives
`activation` or `gradient` seconds after its producer has ended; it occupies no stage, and messages do not delay each
other. So the makespan is a lower bound for any machine on which the actions take these times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import ALL, Action, ActionKind, Row, live_activations


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
    arrivals: dict[tuple[ActionKind, int, int], float] = {}
    advanced = True
    while advanced:
        advanced = False
        for stage, queue in enumerate(queues):
            while len(done[stage]) < len(queue):
                action = queue[len(done[stage])]
                ready = _arrival(action, stage, len(rows), arrivals)
                if ready is None:
                    break
                start = max(ready, done[stage][-1].end if done[stage] else 0.0)
                end = start + each_times[stage].of(action, num_microbatches)
                done[stage].append(TimedAction(action, start, end))
                _deliver(action, stage, end, each_times[stage], arrivals)
                advanced = True
    for stage, queue in enumerate(queues):
        if len(done[stage]) < len(queue):
            action = queue[len(done[stage])]
            raise ConfigError(
                f"stage {stage} deadlocks in {action}: its input depends on a later action of the same row"
            )
    return Timeline(tuple(map(tuple, done)))


def _arrival(
    action: Action, stage: int, num_stages: int, arrivals: dict[tuple[ActionKind, int, int], float]
) -> float | None:
    """When the input of an action arrives; None while that is unknown."""
    if action.kind is ActionKind.FORWARD and stage > 0:
        return arrivals.get((ActionKind.RECV_ACTIVATION, stage, action.microbatch))
    if action.kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT) and stage < num_stages - 1:
        return arrivals.get((ActionKind.RECV_GRADIENT, stage, action.microbatch))
    return 0.0


def _deliver(
    action: Action,
    stage: int,
    end: float,
    times: StageTimes,
    arrivals: dict[tuple[ActionKind, int, int], float],
) -> None:
    if action.kind is ActionKind.FORWARD:
        arrivals[ActionKind.RECV_ACTIVATION, stage + 1, action.microbatch] = end + times.activation
    elif action.kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT):
        arrivals[ActionKind.RECV_GRADIENT, stage - 1, action.microbatch] = end + times.gradient
