"""The contract of a schedule, as checks that run: on ours in the tests, on a user's in `shoal check schedule`."""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.errors import ConfigError
from shoal.printable import counted
from shoal.strategies.exchange.exam import Broken, Check, Verdict, examined
from shoal.strategies.pipeline.schedule import Schedule
from shoal.strategies.pipeline.schedules import build, function_of, with_weights_once
from shoal.strategies.pipeline.validate import validate

Size = tuple[int, int]
"""Stages and micro-batches."""


@dataclass(frozen=True)
class ScheduleSubject:
    """The schedule to check, and its largest size."""

    name: str
    stages: int
    microbatches: int

    def build(self, size: Size) -> Schedule:
        """The schedule of a size, with the first error of its actions."""
        schedule = build(self.name, *size)
        validate(schedule)
        return schedule


def examine_schedule(subject: ScheduleSubject) -> Iterator[Verdict]:
    """Check all clauses, in order; of a schedule that is not valid, no other."""
    return examined(CLAUSES, subject, _described)


def _sizes(subject: ScheduleSubject) -> Iterator[Size]:
    """All sizes up to the largest; smaller ones that the schedule itself refuses with a ConfigError are left out."""
    function = function_of(subject.name)
    for stages in range(1, subject.stages + 1):
        for microbatches in range(1, subject.microbatches + 1):
            try:
                function(stages, microbatches)
            except ConfigError as error:
                if _is_a_refusal(error) and (stages, microbatches) != (subject.stages, subject.microbatches):
                    continue
            except Exception:  # the clause reports it
                pass
            yield stages, microbatches


def _is_a_refusal(error: ConfigError) -> bool:
    """Whether the schedule raised it; a deadlock that `with_messages` found inside it is no refusal of a size."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not frames[-1].f_globals["__name__"].startswith("shoal.")


def _valid(subject: ScheduleSubject, size: Size) -> None:
    subject.build(size)


def _repeatable(subject: ScheduleSubject, size: Size) -> None:
    if subject.build(size) != subject.build(size):
        raise Broken("it is another one the second time, but every worker builds its own")


def _weights_once(subject: ScheduleSubject, size: Size) -> None:
    schedule = subject.build(size)
    if not schedule.updates_inside:
        validate(with_weights_once(schedule))


def _described(size: Size) -> str:
    stages, microbatches = size
    return f"{counted(stages, 'stage')}, {counted(microbatches, 'micro-batch', 'es')}"


CLAUSES: dict[str, Check] = {
    "valid": Check("complete, in order, without deadlock, within the declared memory", _valid, _sizes),
    "the same each time": Check("every worker builds the same schedule", _repeatable, _sizes),
    "weights once": Check("valid with --pipeline.weight_gradients once, too", _weights_once, _sizes),
}
"""All clauses, in the order of checking."""
