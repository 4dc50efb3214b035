"""A stage: consecutive layers of the model on the worker that owns them. The driver calls its methods over RPC.

The course's lab has two: one with the convolutions, one with the fully connected layers. Each call runs on a thread of
the worker's RPC agent, so several micro-batches may be in one stage at once; the layers compute them one at a time.
"""

import queue
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributed import autograd, rpc

from shoal.comm.group import Group
from shoal.events.spans import SpanRecorder, host_ns
from shoal.strategies.library.divided_training import Trained
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.state import model_pieces
from shoal.strategies.pipeline.cut import NamedLayer
from shoal.strategies.rpc import torch_rpc
from shoal.strategies.strategy import Pause, Serving, StepResult
from shoal.strategies.update import Update


@final
class RpcStage:
    """Some layers, their parameters under the names of the whole model, and their part of the optimizer."""

    def __init__(
        self, whole: nn.Module, layers: Sequence[NamedLayer], update: Update, span: SpanRecorder, group: Group
    ) -> None:
        self.span = span
        self._group = group
        self._model = nn.Sequential(*(layer.module for layer in layers))
        mine = {id(tensor) for tensor in (*self._model.parameters(), *self._model.buffers())}
        self._state = {
            name: tensor for name, tensor in whole.state_dict(keep_vars=True).items() if id(tensor) in mine
        }
        held = Trained(
            whole,
            {
                name: param
                for name, param in whole.named_parameters()
                if id(param) in mine and param.requires_grad
            },
        )
        held.span = span
        self._params, self._update = held.params, update.over(held)
        self._layers_lock = threading.Lock()
        self._step: tuple[StepResult, int, float] | None = None
        self.num_steps = 0
        """Steps that this stage has finished."""
        self._sent_bytes = 0
        self._idle_since = 0
        self._times = _BackwardTimes(next(iter(self._params.values())))
        self._num_computing = 0
        self._events: queue.SimpleQueue[Pause | Exception] = queue.SimpleQueue()
        self.serving = Serving()

    # Calls from the driver.

    def forward(self, value: Any, training: bool) -> Tensor:
        """The outputs of the layers. `value`: the inputs, or a reference to the outputs of the stage before."""
        # From worker to worker; the driver never sees it.
        inputs: Tensor = value if isinstance(value, Tensor) else value.to_here()
        with self._reporting(), self._layers_lock, torch.set_grad_enabled(training):
            self._model.train(training)
            # An evaluation is not part of a step, and its time not part of the step's time.
            with self.span("forward", "compute") if training else nullcontext():
                outputs = self._model(inputs)
        if training:
            outputs = self._times.watched(inputs, outputs)
            self._sent_bytes += outputs.nbytes + (inputs.nbytes if inputs.requires_grad else 0)
        return outputs

    def parameters(self) -> list[Any]:
        """References to the parameters, for the distributed optimizer."""
        return [rpc.RRef(param) for param in self._params.values()]

    def gradient_square(self, context: int, step: tuple[StepResult, int, float]) -> tuple[float, int]:
        """The squared norm of the gradients in a context, and the stop signal of this worker.

        `step` is what the driver knows of the step; the update follows, or `skip`.
        """
        with self._reporting():
            self._step = step
            grads = autograd.get_gradients(context).values()
            square = sum(float(grad.flatten().dot(grad.flatten())) for grad in grads)
            return square, self.serving.stop_signal()

    def skip(self) -> None:
        """Leave the update of this step out."""
        with self._reporting():
            self._finish_step()

    def pause(self, pause: Pause) -> None:
        """Make the worker save."""
        self._events.put(pause)

    # Called by the distributed optimizer, which has set the gradients.

    def step(self) -> None:
        """Update the parameters."""
        with self._reporting():
            assert self._step is not None
            self._update(self._step[2])
            self._finish_step()

    def _finish_step(self) -> None:
        assert self._step is not None
        for param in self._params.values():
            param.grad = None
        self.span.marks.extend(("backward", "compute", *times) for times in self._times.take())
        now, sent_bytes = host_ns(), self._sent_bytes
        if self._group.rank > 0:  # rank 0 is the driver, too, and marks its own calls
            self.span.marks.append(("serve", "idle", self._idle_since or now, now))
            self._idle_since = now
        self._sent_bytes = 0
        self._group.note_transfer("rpc", sent_bytes)
        self.num_steps += 1
        self.serving.stepped(*self._step)

    # On the worker itself.

    def next_event(self, timeout_s: float) -> Pause | None:
        """The driver's next pause, or None after `timeout_s`; raises what a call has raised."""
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    @property
    def is_computing(self) -> bool:
        """Whether a call computes, rather than waits for another worker."""
        return self._num_computing > 0 or self._times.is_open

    @contextmanager
    def _reporting(self) -> Generator[None]:
        """Around computation: the worker's own thread learns of errors, and of computation that does not end."""
        self._num_computing += 1
        try:
            yield
        except Exception as error:
            self._events.put(error)
            raise
        finally:
            self._num_computing -= 1

    def pieces(self) -> list[Piece]:
        """Parameters, buffers and optimizer state of this stage."""
        return model_pieces(self._state) + self._update.pieces()

    @torch.no_grad()
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this stage's part of a saved state."""
        for name, tensor in self._state.items():
            tensor.copy_(saved[f"model.{name}"])
        self._update.load(saved)


def stage_here(params: Sequence[Tensor]) -> RpcStage:
    """The optimizer of the stage on this worker, for the distributed optimizer: its `step` updates the parameters."""
    del params  # those of the stage, which knows them by name
    return torch_rpc.published()


@final
class _BackwardTimes:
    """When the backward passes of a stage run: torch runs them in threads of its own, so hooks note the times.

    A pass begins when the gradient of the stage's outputs arrives. It ends with the gradient of its inputs; in the
    first stage, whose inputs need none, with that of the first parameter.
    """

    def __init__(self, first_param: Tensor) -> None:
        self._begun: list[int] = []
        self._over: list[tuple[int, int]] = []
        self._inputs_end = False
        first_param.register_hook(self._param_final)

    @property
    def is_open(self) -> bool:
        """Whether a pass has begun and not ended."""
        return bool(self._begun)

    def watched(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The outputs as a tensor whose backward pass is timed."""
        outputs = outputs.view_as(outputs)  # before any hook that the last layer may have set
        outputs.register_hook(self._begin)
        self._inputs_end = inputs.requires_grad
        if self._inputs_end:
            inputs.register_hook(self._end)
        return outputs

    def take(self) -> list[tuple[int, int]]:
        """The intervals since the last call, united where they overlap."""
        united: list[tuple[int, int]] = []
        for start, end in sorted(self._over):
            if united and start <= united[-1][1]:
                start, end = united[-1][0], max(end, united.pop()[1])
            united.append((start, end))
        self._begun.clear()
        self._over.clear()
        return united

    def _begin(self, gradient: Tensor) -> None:
        self._begun.append(host_ns())

    def _end(self, gradient: Tensor) -> None:
        if self._begun:
            self._over.append((self._begun.pop(0), host_ns()))

    def _param_final(self, gradient: Tensor) -> None:
        if not self._inputs_end:
            self._end(gradient)
