"""Executes one row of a schedule: the only code that knows what an action does.

Messages are posted and return at once. A forward waits for its activation, a backward for its gradient; the end of the
row waits for everything that was sent. Every action that computes is a span with its name in the schedule (`F0`, `B3`,
`W*`), so that a timeline of what happened can be drawn next to the schedule's own.

The form of the activations that pass between stages is learned once, by passing a few samples through all of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal import nested
from shoal.comm.group import Group, Work
from shoal.comm.signature import DTYPES
from shoal.data.dataset import Batch
from shoal.errors import ConfigError, MemberError, member_error
from shoal.events.spans import SpanRecorder
from shoal.nested import Nested
from shoal.strategies.pipeline.schedule import MESSAGES, STEP_TO_PARTNER, Action, ActionKind, Row
from shoal.strategies.pipeline.stage import PipelineStage

MOST_DIMS = 8
_FEW = 2
"""Samples that pass through the stages. Two of them: the size of the batch is then distinct from a size of 1."""


class ActivationForm(NamedTuple):
    """Dtype and shape of one sample's activation."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, batch: Tensor) -> "ActivationForm":
        """The form of the samples of a batch."""
        return cls(batch.dtype, tuple(batch.shape[1:]))

    def empty(self, num_samples: int, device: torch.device) -> Tensor:
        """Memory for so many samples."""
        return torch.empty(num_samples, *self.shape, dtype=self.dtype, device=device)


class Forms(NamedTuple):
    """The forms of the activations that a stage receives and sends; None where it has no neighbour."""

    received: ActivationForm | None
    sent: ActivationForm | None


class _Message(NamedTuple):
    """A message that is under way."""

    kind: ActionKind
    microbatch: int
    tensor: Tensor
    work: Work


@final
class Interpreter:
    """One stage of a pipeline; the group has one worker for each stage, in their order."""

    def __init__(self, group: Group, stage: PipelineStage, span: SpanRecorder) -> None:
        self._group, self._stage, self._span = group, stage, span
        self._is_last = group.rank == group.size - 1
        self._partners = {kind: group.rank + step for kind, step in STEP_TO_PARTNER.items()}
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
        losses: list[Tensor] = []
        for action in row:
            if action.kind in self._partners:
                self._post(action, parts, forms)
            else:
                loss = self._compute(action, parts, scales, update)
                if loss is not None:
                    losses.append(loss)
        while self._leaving:
            self._wait_for(self._leaving.popleft())
        return sum(losses[1:], losses[0]) if losses else None

    def _compute(
        self,
        action: Action,
        parts: Sequence[Batch],
        scales: Sequence[float],
        update: Callable[[], object] | None,
    ) -> Tensor | None:
        """Wait for the action's input, compute, and keep the output until it is sent; the last stage returns losses."""
        kind, microbatch, stage = action.kind, action.microbatch, self._stage
        received, sent = MESSAGES.get(kind, (kind, kind))  # W and U have no messages
        message = self._arriving.pop((received, microbatch), None)  # None if no neighbour sends it
        arrived = None if message is None else self._wait_for(message)
        outputs = None
        with self._span(action.name, "compute"):
            match kind:
                case ActionKind.FORWARD:
                    batch = parts[microbatch]
                    inputs = batch.inputs if arrived is None else arrived
                    outputs = stage.forward(microbatch, inputs, batch.labels)
                case ActionKind.BACKWARD:
                    outputs = stage.backward_input(microbatch, arrived, scales[microbatch])
                    stage.backward_weight(microbatch)
                case ActionKind.BACKWARD_INPUT:
                    outputs = stage.backward_input(microbatch, arrived, scales[microbatch])
                case ActionKind.BACKWARD_WEIGHT:
                    stage.backward_weight(microbatch)
                case _:
                    assert update is not None  # the layout passes one for schedules with updates
                    stage.update(update)
        if kind is ActionKind.FORWARD and self._is_last:
            return outputs
        if outputs is not None:
            self._computed[sent, microbatch] = outputs
        return None

    def _post(self, action: Action, parts: Sequence[Batch], forms: Forms) -> None:
        """Start to send what was computed, or to receive into fresh memory."""
        kind, microbatch, partner = action.kind, action.microbatch, self._partners[action.kind]
        if kind in (ActionKind.SEND_ACTIVATION, ActionKind.SEND_GRADIENT):
            tensor = self._computed.pop((kind, microbatch))
            # Kept until it has left: until then the memory belongs to the group.
            while self._leaving and self._leaving[0].work.done():
                self._wait_for(self._leaving.popleft())
            self._leaving.append(_Message(kind, microbatch, tensor, self._group.send(tensor, partner)))
        else:
            form = forms.received if kind is ActionKind.RECV_ACTIVATION else forms.sent
            assert form is not None  # only neighbours send, and their forms are known
            batch = parts[microbatch]
            tensor = form.empty(batch.num_samples, batch.device)
            work = self._group.recv(tensor, partner)
            self._arriving[kind, microbatch] = _Message(kind, microbatch, tensor, work)

    def _wait_for(self, message: _Message) -> Tensor:
        """The tensor of a message that is over. An error names the stage that is gone, and the micro-batch."""
        try:
            message.work.wait()
        except MemberError as error:
            kind = message.kind
            is_activation = kind in (ActionKind.SEND_ACTIVATION, ActionKind.RECV_ACTIVATION)
            content = "activation" if is_activation else "gradient"
            raise member_error(
                f"{error.message}; stage {self._group.rank} waits for stage {self._partners[kind]} to "
                f"{'receive' if kind.is_send else 'send'} the {content} of micro-batch {message.microbatch}",
                error.hint,
                rank=error.rank,
                reason=error.reason,
            ) from error
        return message.tensor


def learn_forms(group: Group, forward: Callable[[Nested], Tensor], inputs: Nested, last_layer: str) -> Forms:
    """Pass a few samples through all stages, one after the other. A collective of the stages.

    `forward` is this stage's, without effects; `last_layer` names its last layer in an error.
    """
    few = nested.part(inputs, 0, _FEW)
    num_samples, device = nested.length(few), nested.first(few).device
    stage, received, sent = group.rank, None, None
    if stage > 0:
        header = torch.empty(1 + MOST_DIMS, dtype=torch.int64)
        group.recv(header, stage - 1).wait()
        received = _decoded(header)
        few = received.empty(num_samples, device)
        group.recv(few, stage - 1).wait()
    if stage < group.size - 1:
        outputs = forward(few)
        _check_sendable(outputs, num_samples, last_layer)
        sent = ActivationForm.of(outputs)
        group.send(_encoded(sent), stage + 1).wait()
        group.send(outputs, stage + 1).wait()
    return Forms(received, sent)


def share_form(group: Group, form: ActivationForm | None) -> ActivationForm:
    """The last stage's form, on every worker."""
    header = torch.empty(1 + MOST_DIMS, dtype=torch.int64) if form is None else _encoded(form)
    group.broadcast(header, root=group.size - 1).wait()
    return _decoded(header)


def _check_sendable(outputs: Tensor, num_samples: int, last_layer: str) -> None:
    """Refuse an output that cannot be sent, or has no gradient."""
    if (
        outputs.dim() > MOST_DIMS
        or outputs.dim() == 0
        or len(outputs) != num_samples
        or not outputs.is_floating_point()
    ):
        dtype = str(outputs.dtype).removeprefix("torch.")
        raise ConfigError(
            f"cannot cut after '{last_layer}': its output is {dtype} {list(outputs.shape)} for {num_samples} samples, "
            f"expected floating point [{num_samples}, …] of at most {MOST_DIMS} dimensions",
            "Choose another cut (--pipeline.cut).",
        )


def _encoded(form: ActivationForm) -> Tensor:
    lengths = [*form.shape, *[-1] * (MOST_DIMS - len(form.shape))]
    return torch.tensor([DTYPES.index(form.dtype), *lengths])


def _decoded(header: Tensor) -> ActivationForm:
    kind, *lengths = header.tolist()
    return ActivationForm(DTYPES[kind], tuple(length for length in lengths if length >= 0))
