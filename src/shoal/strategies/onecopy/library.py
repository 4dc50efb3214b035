"""`shoal.OneCopy`: one copy of the weights for all workers of a machine, in a training loop of your own."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.agree import check_same_model
from shoal.comm.group import Finished, Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number
from shoal.errors import ConfigError
from shoal.models.common import check_has_values
from shoal.strategies.buckets.buffer_sync import buffer_sync_of
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.buckets.unused import Unused, refuse_dropped
from shoal.strategies.library.backward_pass import BackwardPass
from shoal.strategies.library.default_group import group_of
from shoal.strategies.library.divided_gradients import ShownGradients
from shoal.strategies.library.divided_weights import (
    Trained,
    groups_of_wholes,
    optimizer_of_slices,
    wholes_in_groups,
)
from shoal.strategies.library.shared_state import broadcast_state, shared_state
from shoal.strategies.library.user_objects import SetUp, redirect_step, redirect_zero_grad, show_wholes
from shoal.strategies.norms import chunk_norms, clip, global_norm
from shoal.strategies.pieces.mapped_weights import ALL, MappedWeights, check_maps_memory
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.replicas.sync_batchnorm import give_group


@final
class OneCopy:
    """The workers of a machine train one copy of a model's weights; each updates its slice of them.

    ::

        shared = shoal.OneCopy(model, lambda params: torch.optim.Adam(params, fused=True))
        for inputs, labels in loader:                           # this worker's samples
            shared.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            shared.step()                                       # the same weights for every worker

    The model stays the one you passed: its parameters now are memory that all workers see. `make_optimizer` is given
    this worker's slices of them, flat tensors, and must update each element on its own, as SGD and Adam do. It is also
    given the whole parameters once, and slices are put into their parameter groups. Learning-rate schedules take
    `optimizer`, and `optimizer.step()` is `step()`. `unused="zero"` allows parameters without a gradient.

    Gradients are averaged over the workers, as by `shoal.DistributedDataParallel`. With `step(num_samples=n)` they are
    weighted by the workers' numbers of samples: exact for uneven shares, if each loss is a mean. A worker without
    samples calls `step(num_samples=0)`. Every worker makes every step. `param.grad` is a `DividedGradient`: calls such
    as `torch.nn.utils.clip_grad_norm_` do what they do on one machine, if all workers make them.

    The workers need shared memory: `group` is by default `shoal.join()`'s. After the death of a worker the weights may
    be half updated: continue from a checkpoint. `model.state_dict()` is the whole model on every worker; the
    optimizer's state is this worker's part.
    """

    @checks_arguments
    def __init__(
        self,
        model: nn.Module,
        make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer],
        group: Group | None = None,
        *,
        unused: Unused = "refuse",
    ) -> None:
        check_has_values(model)
        self.model = model
        trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
        if not trained:
            raise ConfigError("the model has no parameter to train")
        self.group = group_of(group, trained)
        params: dict[str, Tensor] = dict(trained)
        state = shared_state(model)
        check_same_model(self.group, state)
        check_maps_memory(self.group, params)
        groups = groups_of_wholes(make_optimizer, params)
        self._set_up = SetUp(model, "call shoal.OneCopy with a new model")
        # Rank 0's trained parameters become the one copy; the others are copied here.
        broadcast_state(self.group, {name: tensor for name, tensor in state.items() if name not in trained})
        self._has_sync_batchnorm = give_group(model, self.group)
        for param in trained.values():
            param.data = param.data.contiguous()
        self._buffers = buffer_sync_of(self.group, model)
        self._params = trained
        self._reducer = Reducer(
            self.group,
            params,
            lambda param, callback: lambda: None,
            lambda bucket: Finished(),
            ReducerOptions(ALL, ALL, unused),
        )
        self._slices = Slices(Trained(params), self.group)
        self._weights = MappedWeights(self.group, params, self._reducer.buckets, self._slices)
        self._set_up.fix_memory(trained)
        counts = self.group.empty(1, torch.float64)
        self._counts = self.group.views_of_all(counts)
        self._shown = ShownGradients(self.group, params, self._slices, self._sum)
        self._is_summed = False
        self._pass = BackwardPass(lambda: self._shown.show(has_sums=False), lambda: None)
        if not self._slices.params:
            raise ConfigError(
                f"the model is too small to be divided among {self.group.size} workers: "
                f"rank {self.group.rank} owns nothing",
                "Use fewer workers, or shoal.DistributedDataParallel.",
            )
        self.optimizer = optimizer_of_slices(make_optimizer, groups, self._slices)
        """The optimizer of this worker's slices. Its `step()` is `step()` of this."""
        self._with_slices = show_wholes(self.optimizer, wholes_in_groups(params, groups))
        self._own_step = redirect_step(self.optimizer, self.step)
        redirect_zero_grad(self.optimizer, self.zero_grad)
        redirect_zero_grad(model, self.zero_grad)
        model.register_forward_pre_hook(lambda module, args: self._pass.forget_failed())
        self._reached: set[str] = set()
        """Parameters that had a gradient here since the last step, if the program has not dropped it since."""
        for name, param in params.items():
            param.register_hook(partial(self._reach, name))

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The model's outputs: the same as calling the model."""
        return self.model(*inputs, **options)

    def zero_grad(self) -> None:
        """Drop the gradients of all passes since the last step. `step` does so, too."""
        self._is_summed = False
        self._reached.clear()
        self._shown.drop()

    def _reach(self, name: str, gradient: Tensor) -> None:
        """A gradient has come, and autograd is about to add it to `param.grad`."""
        del gradient
        self._pass.begin()
        self._reached.difference_update(self._shown.hide())
        self._reached.add(name)
        if self._is_summed:
            raise ConfigError(
                "a backward pass follows after param.grad was read or changed: the gradients are summed already",
                "Clip or read gradients after the last backward pass of a step, or call zero_grad() first.",
            )

    @torch.no_grad()
    @checks_arguments
    def step(self, num_samples: Number | None = None, clip_norm: float | None = None) -> None:
        """Average the workers' gradients, clip them to a common norm if one is given, and update the weights.

        A collective: every worker calls it after its last backward pass of a step. Where the program has read or
        changed a `param.grad` before it, gradients are averaged already, without numbers of samples.
        """
        if not self._is_summed:
            self._sum(num_samples)
        elif num_samples is not None:
            raise ConfigError(
                f"step(num_samples={num_samples}) comes after param.grad was read or changed, for which the gradients "
                "were averaged without numbers of samples",
                "Clip with step(num_samples=n, clip_norm=c), or use shoal.zero: its batch() knows the numbers before.",
            )
        else:
            self._set_up.check()
            self.group.barrier().wait()  # no worker reads weights any more
        for name in self._shown.hide():
            if (owned := self._slices.params.get(name)) is not None:
                owned.grad = None  # as on one machine, the optimizer skips what the program has dropped
        if self._has_samples:
            if clip_norm is not None:
                grads = {
                    name: owned.grad for name, owned in self._slices.params.items() if owned.grad is not None
                }
                norms = {name: chunk_norms(grad) for name, grad in grads.items()}
                clip(grads.values(), global_norm(self._slices.all_norms(norms)), clip_norm)
            with self._own_step(), self._with_slices():
                self.optimizer.step()
        self.group.barrier().wait()
        self.zero_grad()

    @torch.no_grad()
    def _sum(self, num_samples: int | None = None) -> None:
        """Average the gradients over the workers; each has its slices of the result."""
        self._set_up.check()
        self._reached.difference_update(self._shown.hide())
        if dropped := [
            name for name, param in self._params.items() if name in self._reached and param.grad is None
        ]:
            refuse_dropped(self.group, dropped, len(self._params))
        weight = 1 if num_samples is None else num_samples
        self._counts[self.group.rank].fill_(weight)
        # A worker without samples has no gradient, or one of a mean over nothing: it counts as zero.
        if weight:
            self._reducer.prepare(None if weight == 1 else float(weight))
        self._reducer.complete()
        self._reducer.wait()
        if self._buffers is not None:
            self._buffers.update()
        self.group.barrier().wait()
        counts = [count.item() for count in self._counts]
        total = sum(counts)
        if self._has_sync_batchnorm and len(set(counts)) > 1:
            raise ConfigError(
                f"SyncBatchNorm under shoal.OneCopy needs equally many samples on all workers, not {counts}",
                "Use shoal.zero or shoal.DistributedDataParallel, whose batch() knows the numbers before backward.",
            )
        if total:
            self._weights.sum_gradients()
            self._weights.leave_out_unused()
            self._weights.divide_gradients(total)
        self._has_samples, self._is_summed = bool(total), True
        for param in self._params.values():
            param.grad = None
        self._shown.show(has_sums=True)
