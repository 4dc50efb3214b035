"""`shoal.Pipeline`: pipeline parallelism for a training loop of the user's own."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import final

import torch
from torch import Tensor, nn

from shoal.comm.agree import check_same_model
from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count
from shoal.data.dataset import Batch
from shoal.errors import ConfigError
from shoal.events.spans import HostClock, Kind, SpanRecorder
from shoal.models.common import check_has_values
from shoal.strategies.library.part_gradients import mark
from shoal.strategies.library.set_up import check_threads, group_of
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.pipeline.cut import (
    NamedLayer,
    check_order,
    cut_by_cost,
    cut_by_name,
    layers_of,
    must_observe,
)
from shoal.strategies.pipeline.observe import observed_order
from shoal.strategies.pipeline.pipeline import Pipelined, divided, schedule_of
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.strategy import Share


@final
class Pipeline(nn.Module):
    """The stage of a module that this worker computes, and the schedule that connects it with the others.

    Every worker calls it with the same module, and trains with the same batches::

        pipe = shoal.Pipeline(model, loss=nn.CrossEntropyLoss(), example=inputs)
        optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = pipe.step(inputs, labels)  # forward and backward through all stages
            optimizer.step()

    `step` gives each parameter the gradient that `loss(module(inputs), labels).backward()` gives on one machine, if
    `loss` is a mean over samples (the default of torch's losses), and adds it to gradients that are already there.
    `pipe(inputs)` are the module's outputs without gradients. All three calls are collectives, and so is
    `torch.nn.utils.clip_grad_norm_(pipe.parameters(), …)`: it clips to the norm of all stages.

    With `schedule="async"` (PipeDream) a stage updates its weights after every micro-batch::

        loss = pipe.step(inputs, labels, update=optimizer.step)

    With more than one micro-batch, results then differ from one machine's.

    Each worker keeps the parameters of its own stage; rank 0's initial weights count. Memory: a stage's parameters and
    the activations of the micro-batches in flight, at most as many as there are stages with `schedule="1f1b"`.
    Not safe: a `loss` that is not a mean over samples, batches that differ between workers.
    """

    @checks_arguments
    def __init__(
        self,
        module: nn.Module,
        group: Group | None = None,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        schedule: str = "1f1b",
        microbatches: Count = 4,
        cut: Sequence[str] = (),
        example: Tensor | None = None,
        weight_gradients_once: bool = False,
        recompute: bool = False,
    ) -> None:
        """Cut the module into one stage for each worker of the group; without one, of the launcher's workers.

        `cut` names the layers at which a new stage begins. Without it, rank 0 measures the layers with `example`, the
        inputs of a few samples. A module that is neither an `nn.Sequential` nor has `as_sequence()` needs `example`,
        too: the order of its layers is observed. `schedule` is sequential, gpipe, 1f1b, zero-bubble or async.
        """
        super().__init__()
        check_has_values(module)
        params = dict(module.named_parameters())
        group = group_of(group, params)
        check_threads(group, params)
        check_same_model(group, params)
        state = module.state_dict()
        sync_initial_state(group, [Piece.whole(f"model.{name}", tensor) for name, tensor in state.items()])
        stages = self._stages(module, group, cut, example)
        schedule_of(schedule, weight_gradients_once, group.size, microbatches)  # refuse an unknown one now
        config = PipelineConfig(
            schedule=schedule,
            microbatches=microbatches,
            weight_gradients="once" if weight_gradients_once else "each",
            recompute=recompute,
        )

        def loss_sum(outputs: Tensor, labels: Tensor) -> Tensor:
            return loss(outputs, labels) * len(labels)

        self._group = group
        self._layout = Pipelined(
            module, stages, group, loss_sum, lambda device: nullcontext(), SpanRecorder(HostClock()), config
        )
        self._microbatches = microbatches
        self.stage = self._layout.model
        """The layers of this worker."""
        self.layers = tuple(layer.name for layer in stages[group.rank])
        """Their names in the whole module."""

    @staticmethod
    def _stages(
        module: nn.Module, group: Group, cut: Sequence[str], example: Tensor | None
    ) -> list[list[NamedLayer]]:
        order = None
        if example is not None and must_observe(module, cut):
            order = observed_order(module, example)
        if cut or group.size == 1:
            if len(cut) != group.size - 1:
                raise ConfigError(
                    f"cut={list(cut)} makes {len(cut) + 1} stages, but the group has {group.size} workers"
                )
            stages = cut_by_name(module, cut, order)
            if order is not None and example is not None:
                check_order(module, stages, example)
            return stages
        if example is None:
            raise ConfigError(
                "a pipeline needs to know where to cut the module",
                'Name the layers, cut=["fc2"], or pass example=inputs to measure their costs.',
            )
        check_order(module, [[layer] for layer in layers_of(module, order)], example)
        return cut_by_cost(module, group.size, group, example, order)

    @checks_arguments
    def step(self, inputs: Tensor, labels: Tensor, update: Callable[[], object] | None = None) -> Tensor:
        """Add the gradients of a batch to the parameters' gradients; return the loss, the same on all workers.

        With the schedule async, `update` is called with the gradients of each micro-batch, which are then dropped.
        """
        if not len(inputs):
            raise ConfigError("a batch without samples has no loss")
        self._check_update(update)
        layout = self._layout
        layout.span.marks.clear()
        share = Share([Batch(inputs, labels, len(inputs))], len(inputs), len(inputs))
        if update is not None:
            loss = layout.update_each(share, update)
        else:
            total = layout.accumulate(divided(share, self._microbatches), 1.0 / len(inputs))
            loss = layout.zero if total is None else total / len(inputs)
        with_gradient = [param for param in self.parameters() if param.grad is not None]
        for param in with_gradient:
            mark(param, self._group, len(with_gradient))
        loss = loss.to(layout.zero.dtype, copy=True)
        self._group.broadcast(loss, root=self._group.size - 1).wait()
        return loss

    def _check_update(self, update: Callable[[], object] | None) -> None:
        inside = self._layout.updates_inside
        if inside and update is None:
            raise ConfigError(
                "schedule async updates the weights after every micro-batch, but step() was called without update",
                "Write pipe.step(inputs, labels, update=optimizer.step).",
            )
        if update is not None and not inside:
            raise ConfigError(
                "step(update=…) is for schedule async: the others have the gradients of a whole batch at its end",
                "Call optimizer.step() after pipe.step(inputs, labels).",
            )

    @property
    def marks(self) -> list[tuple[str, Kind, int, int]]:
        """The actions of the last step that this worker computed: name in the schedule, kind, start and end in ns."""
        return self._layout.span.marks

    @checks_arguments
    def forward(self, inputs: Tensor) -> Tensor:
        """The module's outputs in evaluation mode, without gradients, on every worker."""
        return self._layout.predict(inputs)

    def whole_state_dict(self) -> dict[str, Tensor]:
        """The whole module's state on rank 0, under its own names; empty on the others. A collective."""
        wholes = WholeTensors(self._layout.pieces(), self._group)
        return {name.removeprefix("model."): tensor.clone() for name, tensor in wholes}

    @torch.no_grad()
    @checks_arguments
    def load_whole_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load this worker's part of a whole module's state."""
        self._layout.load({f"model.{name}": tensor for name, tensor in state.items()})
