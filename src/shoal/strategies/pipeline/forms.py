"""The form of what passes between stages, learned once by passing a few samples through all of them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.signature import DTYPES
from shoal.errors import ConfigError

MOST_DIMS = 8
_FEW = 2
"""Samples that pass through the stages. Two of them: the size of the batch is then distinct from a size of 1."""


class Form(NamedTuple):
    """Dtype and shape of one sample's activation."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, batch: Tensor) -> "Form":
        """The form of the samples of a batch."""
        return cls(batch.dtype, tuple(batch.shape[1:]))

    def empty(self, num_samples: int, device: torch.device) -> Tensor:
        """Memory for so many samples."""
        return torch.empty(num_samples, *self.shape, dtype=self.dtype, device=device)


class Forms(NamedTuple):
    """What a stage receives and what it passes on; None where it has no neighbour."""

    received: Form | None
    sent: Form | None


def learn_forms(group: Group, forward: Callable[[Tensor], Tensor], inputs: Tensor, last_layer: str) -> Forms:
    """Pass a few samples through all stages, one after the other. A collective of the stages.

    `forward` is this stage's, without effects; `last_layer` names its last layer in an error.
    """
    few = inputs[:_FEW]
    stage, received, sent = group.rank, None, None
    if stage > 0:
        header = torch.empty(1 + MOST_DIMS, dtype=torch.int64)
        group.recv(header, stage - 1).wait()
        received = _decoded(header)
        few = received.empty(len(few), inputs.device)
        group.recv(few, stage - 1).wait()
    if stage < group.size - 1:
        outputs = forward(few)
        _check(outputs, len(few), last_layer)
        sent = Form.of(outputs)
        group.send(_encoded(sent), stage + 1).wait()
        group.send(outputs, stage + 1).wait()
    return Forms(received, sent)


def share_form(group: Group, form: Form | None) -> Form:
    """The last stage's form, on every worker."""
    header = torch.empty(1 + MOST_DIMS, dtype=torch.int64) if form is None else _encoded(form)
    group.broadcast(header, root=group.size - 1).wait()
    return _decoded(header)


def _check(outputs: Tensor, num_samples: int, last_layer: str) -> None:
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


def _encoded(form: Form) -> Tensor:
    lengths = [*form.shape, *[-1] * (MOST_DIMS - len(form.shape))]
    return torch.tensor([DTYPES.index(form.dtype), *lengths])


def _decoded(header: Tensor) -> Form:
    kind, *lengths = header.tolist()
    return Form(DTYPES[kind], tuple(length for length in lengths if length >= 0))
