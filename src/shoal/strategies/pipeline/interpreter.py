"""Executes one row of a schedule: the only code that knows what an action does.

Messages are posted and return at once. A forward waits for its activation, a backward for its gradient; the end of the
row waits for everything that was sent. Every action that computes is a span with its name in the schedule (`F0`, `B3`,
`W*`), so that a timeline of what happened can be drawn next to the schedule's own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.data.dataset import Batch
from shoal.errors import MemberError, member_error
from shoal.events.spans import SpanRecorder
from shoal.strategies.pipeline.forms import Form, Forms
from shoal.strategies.pipeline.schedule import ALL, ActionKind, Row
from shoal.strategies.pipeline.stage import PipelineStage


class _Message(NamedTuple):
    """A message that is under way."""

    kind: ActionKind
    microbatch: int
    tensor: Tensor
    work: Work


_CONTENT = {
    ActionKind.SEND_ACTIVATION: "the activation",
    ActionKind.RECV_ACTIVATION: "the activation",
    ActionKind.SEND_GRADIENT: "the gradient",
    ActionKind.RECV_GRADIENT: "the gradient",
}


@final
class Interpreter:
    """One stage of a pipeline; the group has one worker for each stage, in their order."""

    def __init__(self, group: Group, stage: PipelineStage, span: SpanRecorder) -> None:
        self._group, self._stage, self._span = group, stage, span
        self._is_last = group.rank == group.size - 1
        self._actions: dict[ActionKind, Callable[[int, str], None]] = {
            ActionKind.FORWARD: self._forward,
            ActionKind.BACKWARD: self._backward,
            ActionKind.BACKWARD_INPUT: self._backward_input,
            ActionKind.BACKWARD_WEIGHT: self._backward_weight,
            ActionKind.UPDATE: self._update_weights,
            ActionKind.SEND_ACTIVATION: self._send_activation,
            ActionKind.RECV_ACTIVATION: self._receive_activation,
            ActionKind.SEND_GRADIENT: self._send_gradient,
            ActionKind.RECV_GRADIENT: self._receive_gradient,
        }
        self._parts: Sequence[Batch] = ()
        self._forms = Forms(None, None)
        self._scales: Sequence[float] = ()
        self._update: Callable[[], object] | None = None
        self._losses: list[Tensor] = []
        self._computed: dict[tuple[ActionKind, int], Tensor] = {}
        """Activations and gradients that this stage has computed and not yet sent."""
        self._arriving: dict[tuple[ActionKind, int], _Message] = {}
        self._leaving: deque[_Message] = deque()

    def run(
        self,
        row: Row,
        parts: Sequence[Batch],
        forms: Forms,
        scales: Sequence[float],
        update: Callable[[], object] | None = None,
    ) -> Tensor | None:
        """Execute a row for these micro-batches; the gradients of each are multiplied by its own scale.

        A row with updates calls `update` for each. Returns the sum of the losses; None on stages before the last.
        """
        self._parts, self._forms, self._scales, self._update = parts, forms, scales, update
        for action in row:
            self._actions[action.kind](action.microbatch, str(action))
        while self._leaving:
            self._settle(self._leaving.popleft())
        losses, self._losses = self._losses, []
        total = None
        for loss in losses:
            total = loss if total is None else total + loss
        return total

    # Computing.

    def _forward(self, microbatch: int, name: str) -> None:
        batch = self._parts[microbatch]
        inputs = self._arrived(ActionKind.RECV_ACTIVATION, microbatch)
        with self._span(name, "compute"):
            outputs = self._stage.forward(
                microbatch, batch.inputs if inputs is None else inputs, batch.labels
            )
        if self._is_last:
            self._losses.append(outputs)
        else:
            self._computed[ActionKind.SEND_ACTIVATION, microbatch] = outputs

    def _backward(self, microbatch: int, name: str) -> None:
        gradient = self._arrived(ActionKind.RECV_GRADIENT, microbatch)
        with self._span(name, "compute"):
            self._backward_to_input(microbatch, gradient)
            self._stage.backward_weight(microbatch)

    def _backward_input(self, microbatch: int, name: str) -> None:
        gradient = self._arrived(ActionKind.RECV_GRADIENT, microbatch)
        with self._span(name, "compute"):
            self._backward_to_input(microbatch, gradient)

    def _backward_to_input(self, microbatch: int, gradient: Tensor | None) -> None:
        wanted = self._stage.backward_input(microbatch, gradient, self._scales[microbatch])
        if wanted is not None:
            self._computed[ActionKind.SEND_GRADIENT, microbatch] = wanted

    def _backward_weight(self, microbatch: int, name: str) -> None:
        with self._span(name, "compute"):
            if microbatch == ALL:
                self._stage.backward_weight_all()
            else:
                self._stage.backward_weight(microbatch)

    def _update_weights(self, microbatch: int, name: str) -> None:
        assert self._update is not None  # the layout passes one for schedules with updates
        with self._span(name, "compute"):
            self._stage.update(self._update)

    # Messages.

    def _arrived(self, kind: ActionKind, microbatch: int) -> Tensor | None:
        """Wait for a message that this stage expects; None if no neighbour sends it."""
        if (kind, microbatch) not in self._arriving:
            return None
        return self._settle(self._arriving.pop((kind, microbatch)))

    def _settle(self, message: "_Message") -> Tensor:
        """Wait for a message. An error names the stage that is gone, and the micro-batch."""
        try:
            message.work.wait()
        except MemberError as error:
            kind, microbatch = message.kind, message.microbatch
            peer = self._group.rank + kind.step_to_partner
            raise member_error(
                f"{error.message}; stage {self._group.rank} waits for stage {peer} to "
                f"{'receive' if kind.is_send else 'send'} {_CONTENT[kind]} of micro-batch {microbatch}",
                error.hint,
                rank=error.rank,
                reason=error.reason,
            ) from error
        return message.tensor

    def _send_activation(self, microbatch: int, name: str) -> None:
        self._send(ActionKind.SEND_ACTIVATION, microbatch)

    def _send_gradient(self, microbatch: int, name: str) -> None:
        self._send(ActionKind.SEND_GRADIENT, microbatch)

    def _receive_activation(self, microbatch: int, name: str) -> None:
        self._receive(ActionKind.RECV_ACTIVATION, microbatch, self._forms.received)

    def _receive_gradient(self, microbatch: int, name: str) -> None:
        self._receive(ActionKind.RECV_GRADIENT, microbatch, self._forms.sent)

    def _send(self, kind: ActionKind, microbatch: int) -> None:
        tensor = self._computed.pop((kind, microbatch))
        # Kept until it has left: until then the memory belongs to the group.
        while self._leaving and self._leaving[0].work.done():
            self._settle(self._leaving.popleft())
        work = self._group.send(tensor, self._group.rank + kind.step_to_partner)
        self._leaving.append(_Message(kind, microbatch, tensor, work))

    def _receive(self, kind: ActionKind, microbatch: int, form: Form | None) -> None:
        assert form is not None  # only neighbours send, and their forms are known
        batch = self._parts[microbatch]
        tensor = form.empty(batch.num_samples, batch.inputs.device)
        work = self._group.recv(tensor, self._group.rank + kind.step_to_partner)
        self._arriving[kind, microbatch] = _Message(kind, microbatch, tensor, work)
