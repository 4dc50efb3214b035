"""A pipeline schedule as data: for each stage, the actions that it executes, in order.

Two stages, two micro-batches, 1F1B; `↘` is an activation on its way down, `↗` a gradient on its way up:

    stage 0   F0  sA0   F1  sA1            rG0  B0            rG1  B1
                    ↘         ↘             ↗                  ↗
    stage 1         rA0  F0   rA1  B0    sG0    F1   B1     sG1

What an action means:

    F k              forward of micro-batch k: stores the activations that its backward needs
    B k              backward of micro-batch k: gradients of the weights and of the input; frees the activations
    I k, W k         the two halves of B: gradient of the input, then gradients of the weights; W frees the activations
    W *              the weight gradients of all micro-batches at once
    U k              update of the weights with the gradients of micro-batch k (asynchronous schedules only)
    sA k → rA k      the output of F k goes to the next stage, where it is the input of F k
    sG k → rG k      the gradient of the input of B k (or I k) goes to the previous stage, for its B k (or I k)

Sends and receives are *posted*: they return at once. F, B and I wait for their own message; the end of the row waits
for all sends. A send is complete when the neighbour has received it: no transport has to buffer anything, and the
tensor must not change until then.

The rows are the stages' parts of one order of all actions, in which a send and its receive stand together. So two
neighbours list their messages in the same order, and nothing deadlocks, even where every send blocks until it is
received and every receive until it is sent (`validate` proves it for the data).
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from shoal.errors import ConfigError

ALL = -1
"""The micro-batch of an action that handles all micro-batches of the step at once."""


class ActionKind(Enum):
    """What a stage does in one action."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    UPDATE = "U"
    SEND_ACTIVATION = "sA"
    RECV_ACTIVATION = "rA"
    SEND_GRADIENT = "sG"
    RECV_GRADIENT = "rG"

    @property
    def is_message(self) -> bool:
        """Whether it moves data between stages; all others compute."""
        return self in STEP_TO_PARTNER

    @property
    def is_send(self) -> bool:
        """Whether it sends an activation or a gradient."""
        return self in (ActionKind.SEND_ACTIVATION, ActionKind.SEND_GRADIENT)

    @property
    def step_to_partner(self) -> int:
        """Of a message: the partner's stage minus this one."""
        return STEP_TO_PARTNER[self]

    @property
    def counterpart(self) -> "ActionKind":
        """Of a message: what the partner does."""
        return _COUNTERPART[self]


F, B, I, W, U = map(ActionKind, "FBIWU")  # noqa: E741
"""The kinds that compute, by their letters."""

STEP_TO_PARTNER = {
    ActionKind.SEND_ACTIVATION: +1,
    ActionKind.RECV_ACTIVATION: -1,
    ActionKind.SEND_GRADIENT: -1,
    ActionKind.RECV_GRADIENT: +1,
}
"""Of each message: the partner's stage minus this one."""
_COUNTERPART = {
    ActionKind.SEND_ACTIVATION: ActionKind.RECV_ACTIVATION,
    ActionKind.RECV_ACTIVATION: ActionKind.SEND_ACTIVATION,
    ActionKind.SEND_GRADIENT: ActionKind.RECV_GRADIENT,
    ActionKind.RECV_GRADIENT: ActionKind.SEND_GRADIENT,
}
MESSAGES = {
    ActionKind.FORWARD: (ActionKind.RECV_ACTIVATION, ActionKind.SEND_ACTIVATION),
    ActionKind.BACKWARD: (ActionKind.RECV_GRADIENT, ActionKind.SEND_GRADIENT),
    ActionKind.BACKWARD_INPUT: (ActionKind.RECV_GRADIENT, ActionKind.SEND_GRADIENT),
}
"""What an action receives before it, and sends after it, where there is a neighbour."""


@dataclass(frozen=True)
class Action:
    """One entry of a row.

    >>> str(Action(ActionKind.FORWARD, 3)), str(Action(ActionKind.BACKWARD_WEIGHT, ALL))
    ('F3', 'W*')
    """

    kind: ActionKind
    microbatch: int

    @cached_property
    def name(self) -> str:
        """As a row lists it."""
        return f"{self.kind.value}{'*' if self.microbatch == ALL else self.microbatch}"

    def __str__(self) -> str:
        return self.name


Row = tuple[Action, ...]


@dataclass(frozen=True)
class Schedule:
    """What each stage executes in one step of training."""

    name: str
    num_microbatches: int
    rows: tuple[Row, ...]
    """The actions of each stage, in order."""
    peak_live: tuple[int, ...]
    """Declared for each stage: the number of micro-batches whose activations it holds at once, at most."""

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.rows)

    @cached_property
    def compute_rows(self) -> tuple[Row, ...]:
        """The rows without messages."""
        return tuple(tuple(action for action in row if not action.kind.is_message) for row in self.rows)

    @property
    def updates_inside(self) -> bool:
        """Whether weights change during the step, so that a stage keeps one version per micro-batch in flight."""
        return any(action.kind is ActionKind.UPDATE for row in self.rows for action in row)


def parse_row(text: str) -> Row:
    """The row that a text lists.

    >>> [str(action) for action in parse_row("F0 sA0 rG0 I0 W*")]
    ['F0', 'sA0', 'rG0', 'I0', 'W*']
    >>> parse_row("F0 X0")
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: 'X0' is no action of a pipeline schedule
      Write F, B, I, W, U, sA, rA, sG or rG and the number of a micro-batch, or * for all: F0, W*.
    """
    letters = [kind.value for kind in ActionKind]
    row: list[Action] = []
    for word in text.split():
        kind = word.rstrip("0123456789*")
        number = word[len(kind) :]
        if kind not in letters or not (number == "*" or number.isdecimal()):
            raise ConfigError(
                f"'{word}' is no action of a pipeline schedule",
                f"Write {', '.join(letters[:-1])} or {letters[-1]} and the number of a micro-batch, or * for all: "
                "F0, W*.",
            )
        row.append(Action(ActionKind(kind), ALL if number == "*" else int(number)))
    return tuple(row)


def live_activations(row: Row) -> list[int]:
    """The number of micro-batches whose activations a stage holds after each action of its row.

    >>> live_activations(parse_row("F0 F1 B0 F2 I1 I2 W*"))
    [1, 2, 1, 2, 2, 2, 0]
    """
    live = 0
    counts: list[int] = []
    for action in row:
        if action.kind is ActionKind.FORWARD:
            live += 1
        elif action.kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_WEIGHT):
            live = 0 if action.microbatch == ALL else live - 1
        counts.append(live)
    return counts
