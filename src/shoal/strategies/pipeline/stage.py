"""One stage of a pipeline: forward and both halves of backward of micro-batches, several of them in flight."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from shoal import nested
from shoal.models.common import may_write_into_input
from shoal.nested import Nested
from shoal.strategies.gradient_engine import Loss, backward_from
from shoal.strategies.pipeline.schedule import ALL
from shoal.strategies.pipeline.weight_gradients import WeightGradients

Autocast = Callable[[str], AbstractContextManager[object]]
"""The context of forward pass and loss, on a device of that type."""


@dataclass
class _InFlight:
    """A micro-batch between its forward and its backward."""

    inputs: Nested
    """A leaf; backward leaves its gradient there. On the first stage the samples, possibly nested."""
    labels: Nested | None
    outputs: Tensor | None
    """The activation, or on the last stage the loss; None if it is recomputed."""
    random_state: list[Tensor]
    """Of the host and of the GPU before the forward pass, if it is recomputed."""


@final
class PipelineStage:
    """Computes the actions of one stage.

    With `recompute`, a stage keeps the input of each micro-batch only, and repeats the forward pass when its backward
    begins: less memory, a third more work. The repetition draws the same random numbers and leaves batch statistics as
    they are. With `stash_weights`, weights may change while micro-batches are in flight (`WeightVersions`).
    """

    def __init__(
        self,
        model: nn.Sequential,
        loss: Loss | None,
        autocast: Autocast,
        is_first: bool,
        recompute: bool = False,
        stash_weights: bool = False,
    ) -> None:
        self.model = model
        self.loss = loss
        """Set on the last stage."""
        self._autocast = autocast
        self._is_first = is_first
        self._recompute = recompute
        self._weight_gradients = WeightGradients(model)
        self._in_flight: dict[int, _InFlight] = {}
        self._trained = [param for param in model.parameters() if param.requires_grad]
        self.versions = WeightVersions(self._trained) if stash_weights else None
        # A layer that writes into its input must not write into a leaf.
        self._copies_input = may_write_into_input(model[0])

    def forward(self, microbatch: int, inputs: Nested, labels: Nested) -> Tensor:
        """The activation for the next stage; on the last stage the loss."""
        if not self._is_first:
            inputs.requires_grad_()
        held = _InFlight(inputs, labels if self.loss else None, None, [])
        if self._recompute:
            held.random_state = random_state(nested.first(inputs).device)
        with self.versions.begin(microbatch) if self.versions else nullcontext():
            if self._recompute:
                with torch.no_grad():
                    outputs = self._outputs(held)
            else:
                outputs = held.outputs = self._outputs(held)
        self._in_flight[microbatch] = held
        return outputs.detach()

    def _outputs(self, held: _InFlight) -> Tensor:
        inputs = held.inputs.clone() if self._copies_input and not self._is_first else held.inputs
        with self._autocast(nested.first(inputs).device.type):
            outputs = self.model(inputs)
            if held.labels is None or self.loss is None:
                return outputs
            loss = self.loss(outputs, held.labels)
        # A loss scale is no number in float16.
        return loss.float() if loss.dtype == torch.float16 else loss

    def backward_input(self, microbatch: int, gradient: Tensor | None, scale: float) -> Tensor | None:
        """The gradient of the input, for the previous stage; None on the first. The last stage starts from `scale`."""
        held = self._in_flight.pop(microbatch)
        outputs = self._recomputed(microbatch, held) if held.outputs is None else held.outputs
        if outputs.requires_grad:
            self._weight_gradients.current = microbatch
            backward_from(outputs, outputs.new_full((), scale) if gradient is None else gradient)
        if self.versions:
            self.versions.end(microbatch)
        if self._is_first:
            return None
        return torch.zeros_like(held.inputs) if held.inputs.grad is None else held.inputs.grad

    def _recomputed(self, microbatch: int, held: _InFlight) -> Tensor:
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        device = nested.first(held.inputs).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            set_random_state(held.random_state, device)
            with self.versions.again(microbatch) if self.versions else nullcontext():
                outputs = self._outputs(held)
        # Through `data`: autograd would take a change of a saved buffer for an error.
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.data.copy_(before)
        return outputs

    def backward_weight(self, microbatch: int) -> None:
        """Add the weight gradients of one micro-batch, or of `ALL`."""
        if microbatch == ALL:
            self._weight_gradients.add_all()
        else:
            self._weight_gradients.add(microbatch)

    def update(self, update: Callable[[], object]) -> None:
        """Change the weights by the gradients of one micro-batch, which are then dropped. Needs `stash_weights`."""
        assert self.versions is not None
        self.versions.begin_next()
        update()
        for param in self._trained:
            param.grad = None


def random_state(device: torch.device) -> list[Tensor]:
    """The state of torch's generators: the host's and, on a GPU, the device's."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random_state(state: list[Tensor], device: torch.device) -> None:
    """Draw from now on what `random_state` would have drawn then."""
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


@final
class WeightVersions:
    """Weight stashing: each micro-batch goes backward with the weights that it went forward with.

    While a micro-batch is in flight, the updates of earlier ones change the weights. Its gradient is that of a function
    only if both passes use the same weights, so a stage keeps every version that a micro-batch in flight has used:

        stage 0 of 2    F0   F1   B0   U0   F2   B1   U1   F3   B2   U2   B3   U3
        uses version     0    0    0         1    0         2    1         2
        then kept        0    0    0   0,1  0,1   1   1,2  1,2   2   2,3   3    4

    Nothing is copied in a forward pass. An update first gives the parameters new memory, if a micro-batch in flight
    uses the present one; the old memory then is the stashed version. On the last stage none is in flight, and nothing
    is copied.

    Costs a copy of the stage's parameters for each update with micro-batches in flight; memory for as many versions as
    there are micro-batches in flight, at most. Not safe: a layer that changes in place what its backward pass needs.
    Torch's check for that counts updates of weights, too, so it is off.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self._params = params
        self._newest = 0
        self._used: dict[int, int] = {}
        """The version that each micro-batch in flight has used."""
        self._stashed: dict[int, list[Tensor]] = {}
        """The values of versions before the newest."""

    def begin(self, microbatch: int) -> AbstractContextManager[object]:
        """The context of a micro-batch's forward pass: it uses the newest weights, and its backward pass will, too."""
        self._used[microbatch] = self._newest
        return _saving_memory()

    @contextmanager
    def again(self, microbatch: int) -> Generator[None]:
        """The context of a forward pass that is repeated: the parameters have the values that the first one used."""
        stashed = self._stashed.get(self._used[microbatch])
        if stashed is None:
            yield
            return
        newest = [param.data for param in self._params]
        self._set(stashed)
        try:
            with _saving_memory():
                yield
        finally:
            self._set(newest)

    def end(self, microbatch: int) -> None:
        """Forget the version of a micro-batch that has gone backward, unless others in flight use it."""
        version = self._used.pop(microbatch)
        if version not in self._used.values():
            self._stashed.pop(version, None)

    def begin_next(self) -> None:
        """Call before an update: it changes the newest weights, and no version that is in use."""
        if self._newest in self._used.values():
            self._stashed[self._newest] = [param.data for param in self._params]
            self._set([param.data.clone() for param in self._params])
        self._newest += 1

    def _set(self, values: list[Tensor]) -> None:
        for param, value in zip(self._params, values, strict=True):
            param.data = value


def _saving_memory() -> AbstractContextManager[object]:
    # Autograd would save the parameters themselves, and find their new memory in the backward pass.
    return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda saved: saved)
