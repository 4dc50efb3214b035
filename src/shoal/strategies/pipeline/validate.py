"""Proves on the data that a schedule can be executed: complete, in order, without deadlock, within its memory.

An error names the stage, the action and its position in the row, all counted from 0: `stage 1, action 7 (F3): …`.
"""

from itertools import pairwise
from typing import NoReturn

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import (
    ALL,
    MESSAGES,
    Action,
    ActionKind,
    B,
    F,
    I,
    Row,
    Schedule,
    U,
    W,
    live_activations,
)


def validate(schedule: Schedule) -> None:
    """Raise ConfigError at the first action that is wrong.

    >>> from shoal.strategies.pipeline.schedule import parse_row
    >>> validate(Schedule("mine", 2, (parse_row("F0 F1 B1 B0"),), peak_live=(2,)))
    Traceback (most recent call last):
    shoal.errors.ConfigError: stage 0, action 3 (B0): comes after B1, but micro-batches go in ascending order
    """
    if not schedule.rows or schedule.num_microbatches < 1:
        raise ConfigError(f"schedule {schedule.name} needs at least 1 stage and 1 micro-batch")
    stages = [_StageRow(number, schedule) for number in range(schedule.num_stages)]
    for stage in stages:
        stage.check_numbers()
        stage.check_forward_and_backward()
        stage.check_updates(schedule.updates_inside)
        stage.check_messages()
    for stage, following in pairwise(stages):
        _check_channel(stage, ActionKind.SEND_ACTIVATION, following)
        _check_channel(following, ActionKind.SEND_GRADIENT, stage)
    _check_deadlock(stages)
    _check_memory(schedule, stages)


class _StageRow:
    """A row, with the position of each of its actions."""

    def __init__(self, number: int, schedule: Schedule) -> None:
        self.number = number
        self.row: Row = schedule.rows[number]
        self.num_microbatches = schedule.num_microbatches
        self.neighbours = {step for step in (-1, +1) if 0 <= number + step < schedule.num_stages}
        self.position: dict[Action, int] = {}

    def fail(self, position: int, reason: str) -> NoReturn:
        raise ConfigError(f"{self.name(position)}: {reason}")

    def name(self, position: int) -> str:
        return f"stage {self.number}, action {position} ({self.row[position]})"

    def check_numbers(self) -> None:
        """Each action at most once, of a micro-batch that exists."""
        for position, action in enumerate(self.row):
            if action.microbatch == ALL and action.kind is not W:
                self.fail(position, "only W can handle all micro-batches at once")
            if not (action.microbatch == ALL or 0 <= action.microbatch < self.num_microbatches):
                self.fail(position, f"the micro-batches are 0 to {self.num_microbatches - 1}")
            if action in self.position:
                self.fail(position, f"is action {self.position[action]} already")
            self.position[action] = position

    def check_forward_and_backward(self) -> None:
        """F, then B, or I and then W, of every micro-batch, each in ascending order."""
        for microbatch in range(self.num_microbatches):
            forward, whole, half = (self.position.get(Action(kind, microbatch)) for kind in (F, B, I))
            if forward is None:
                raise ConfigError(f"stage {self.number}: F{microbatch} is missing")
            backward = half if whole is None else whole
            if backward is None:
                self.fail(forward, f"its backward, B{microbatch} or I{microbatch}, is missing")
            if whole is not None and half is not None:
                self.fail(max(whole, half), "the backward of this micro-batch is computed twice")
            if backward < forward:
                self.fail(backward, f"comes before F{microbatch}, action {forward}")
            self._check_weight_gradient(microbatch, backward)
        for kind in (F, B, I, W):
            for before, after in pairwise(self.positions(kind)):
                if self.row[after].microbatch < self.row[before].microbatch:
                    self.fail(
                        after, f"comes after {self.row[before]}, but micro-batches go in ascending order"
                    )

    def _check_weight_gradient(self, microbatch: int, backward: int) -> None:
        """Once per micro-batch: in B, or in one W after I."""
        found = [
            self.position[key] for each in (microbatch, ALL) if (key := Action(W, each)) in self.position
        ]
        name = f"{self.row[backward]}, action {backward}"
        if self.row[backward].kind is B:
            if found:
                self.fail(found[0], f"{name}, computes the weight gradient already")
            return
        if not found:
            self.fail(backward, f"its weight gradient, W{microbatch}, is missing")
        for position in found:
            if position < backward:
                self.fail(position, f"comes before {name}")
        if len(found) > 1:
            self.fail(found[1], f"W{microbatch}, action {found[0]}, computes a weight gradient already")

    def check_updates(self, expected: bool) -> None:
        """Either no updates, or one right after each micro-batch's weight gradient: none may add up."""
        if not expected:
            return
        pending: int | None = None
        for position, action in enumerate(self.row):
            if action.kind in (B, W):
                if pending is not None:
                    waiting = self.row[pending]
                    self.fail(position, f"U{waiting.microbatch} must come first: gradients would add up")
                pending = position
            elif action.kind is U:
                if pending is None or self.row[pending].microbatch != action.microbatch:
                    self.fail(position, "does not follow the weight gradient of its micro-batch")
                pending = None
        if pending is not None:
            self.fail(pending, f"its update, U{self.row[pending].microbatch}, is missing")

    def check_messages(self) -> None:
        """An action's input is received before it, its output sent after it; edges have no neighbour."""
        for position, action in enumerate(self.row):
            if action.kind.is_message and action.kind.step_to_partner not in self.neighbours:
                side = "next" if action.kind.step_to_partner > 0 else "previous"
                self.fail(position, f"stage {self.number} has no {side} stage")
            if action.kind not in MESSAGES:
                continue
            for kind in MESSAGES[action.kind]:
                if kind.step_to_partner not in self.neighbours:
                    continue
                message = Action(kind, action.microbatch)
                found = self.position.get(message)
                if found is None:
                    self.fail(position, f"{message} is missing")
                if kind.is_send and found < position:
                    self.fail(found, f"is sent before {action}, action {position}, has computed it")
                if not kind.is_send and found > position:
                    self.fail(position, f"its input arrives later, with {message}, action {found}")

    def positions(self, kind: ActionKind) -> list[int]:
        return [position for position, action in enumerate(self.row) if action.kind is kind]


def _check_channel(sender: _StageRow, kind: ActionKind, receiver: _StageRow) -> None:
    """The receiver expects the messages of a channel in the order in which they are sent."""
    sent, expected = sender.positions(kind), receiver.positions(kind.counterpart)
    for here, there in zip(sent, expected, strict=True):  # check_messages: both have every micro-batch
        if sender.row[here].microbatch != receiver.row[there].microbatch:
            sender.fail(here, f"is out of order: {receiver.name(there)} expects another message first")


def _check_deadlock(stages: list[_StageRow]) -> None:
    """Execute the rows with unbuffered messages: a send and its receive block until both stages are there.

    That is stricter than posted messages, so what passes cannot deadlock with those either.
    """
    at = [0] * len(stages)
    advanced = True
    while advanced:
        advanced = False
        for number, stage in enumerate(stages):
            while at[number] < len(stage.row):
                action = stage.row[at[number]]
                if action.kind.is_message:
                    partner = number + action.kind.step_to_partner
                    current = stages[partner].row[at[partner] : at[partner] + 1]
                    if current != (Action(action.kind.counterpart, action.microbatch),):
                        break
                    at[partner] += 1
                at[number] += 1
                advanced = True
    stuck = [stage for stage, position in zip(stages, at, strict=True) if position < len(stage.row)]
    if stuck:
        first, *others = (stage.name(at[stage.number]) for stage in stuck)
        raise ConfigError(f"{first}: deadlock with {' and '.join(others)}, if no message is buffered")


def _check_memory(schedule: Schedule, stages: list[_StageRow]) -> None:
    """Each stage holds as many activations as the schedule declares, and frees them all."""
    if len(schedule.peak_live) != len(stages):
        raise ConfigError(
            f"schedule {schedule.name} declares peak_live for {len(schedule.peak_live)} of {len(stages)} stages"
        )
    for stage, declared in zip(stages, schedule.peak_live, strict=True):
        counts = live_activations(stage.row)
        position = max(range(len(counts)), key=counts.__getitem__)
        if counts[position] != declared:
            stage.fail(
                position, f"holds {counts[position]} live activations at its peak, {declared} declared"
            )
