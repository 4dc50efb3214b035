"""`shoal.OneCopy`: one copy of the weights for all workers of a machine, in a training loop of your own."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from shoal.comm.agree import check_same_model
from shoal.comm.group import Finished, Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number
from shoal.errors import ConfigError
from shoal.events.spans import HostClock, SpanRecorder
from shoal.optim.over import build_over, regroup
from shoal.parallel.buckets.buffer_sync import buffer_sync_of
from shoal.parallel.buckets.reducer import Reducer, ReducerOptions
from shoal.parallel.buckets.unused import Unused
from shoal.parallel.has_values import check_has_values
from shoal.parallel.mapped_weights import ALL, MappedWeights, check_maps_memory
from shoal.parallel.norms import chunk_norms, clip, global_norm, in_order
from shoal.parallel.piece import Place
from shoal.parallel.slices import Slices
from shoal.parallel.sync_batchnorm import give_group
from shoal.parallel.update import MakeOptimizer, ParameterGroups, check_elementwise, parameter_groups
from shoal.parallel.wrapper.default_group import group_of
from shoal.parallel.wrapper.module_sync import broadcast_state, shared_state
from shoal.parallel.wrapper.user_objects import SetUp, redirect_step, redirect_zero_grad


@final
class Trained:
    """A model's parameters as `Slices` takes them: none is divided yet."""

    def __init__(self, params: dict[str, Tensor]) -> None:
        self.params = params
        self.span = SpanRecorder(HostClock())
        self.sharded_over: Sequence[Group] = ()
        self.repeated: Collection[str] = ()
        self.zero = next(iter(params.values())).detach().new_zeros(())

    def place_of(self, name: str) -> Place:
        """The whole parameter."""
        return Place.whole(self.params[name])

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """The norms as they are."""
        return in_order(norms)


def groups_of_wholes(make_optimizer: MakeOptimizer, params: Mapping[str, Tensor]) -> ParameterGroups | None:
    """Build the optimizer of whole parameters, to learn their groups and whether it can update slices of them."""
    optimizer = build_over(make_optimizer, params.values())
    check_elementwise(optimizer, "shoal.DistributedDataParallel")
    return parameter_groups(optimizer, params)


def optimizer_of_slices(
    make_optimizer: MakeOptimizer, groups: ParameterGroups | None, slices: Slices
) -> torch.optim.Optimizer:
    """The optimizer of this worker's slices, in the groups of the whole parameters."""
    # An optimizer needs a parameter; a worker may own none of a small model.
    optimizer = build_over(make_optimizer, [*slices.params.values()] or [torch.zeros(1)])
    if groups is not None:
        regroup(optimizer, slices.params, *groups)
    return optimizer


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
    samples calls `step(num_samples=0)`. Every worker makes every step.

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
        trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
        if not trained:
            raise ConfigError("the model has no parameter to train")
        self.group = group_of(group, trained)
        params: dict[str, Tensor] = dict(trained)
        check_maps_memory(self.group, params)
        groups = groups_of_wholes(make_optimizer, params)
        self._set_up = SetUp(model, "call shoal.OneCopy with a new model")
        state = shared_state(model)
        check_same_model(self.group, state)
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
        self._may_be_unused = unused == "zero"
        self._slices = Slices(Trained(params), self.group)
        self._weights = MappedWeights(self.group, params, self._reducer.buckets, self._slices)
        self._set_up.fix_memory(trained)
        counts = self.group.empty(1, torch.float64)
        self._counts = self.group.views_of_all(counts)
        if not self._slices.params:
            raise ConfigError(
                f"the model is too small to be divided among {self.group.size} workers: "
                f"rank {self.group.rank} owns nothing",
                "Use fewer workers, or shoal.DistributedDataParallel.",
            )
        self.optimizer = optimizer_of_slices(make_optimizer, groups, self._slices)
        """The optimizer of this worker's slices. Its `step()` is `step()` of this."""
        self._own_step = redirect_step(self.optimizer, self.step)
        redirect_zero_grad(self.optimizer, self.zero_grad)

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for param in self._params.values():
            param.grad = None

    @torch.no_grad()
    @checks_arguments
    def step(self, num_samples: Number | None = None, clip_norm: float | None = None) -> None:
        """Average the workers' gradients, clip them to a common norm if one is given, and update the weights.

        A collective: every worker calls it after its last backward pass of a step. (`torch.nn.utils.clip_grad_norm_`
        before it clips one worker's own gradients.)
        """
        self._set_up.check()
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
            if self._may_be_unused:
                self._weights.leave_out_unused()
            self._weights.divide_gradients(total)
            if clip_norm is not None:
                grads = {
                    name: owned.grad for name, owned in self._slices.params.items() if owned.grad is not None
                }
                norms = {name: chunk_norms(grad) for name, grad in grads.items()}
                clip(grads.values(), global_norm(self._slices.all_norms(norms)), clip_norm)
            with self._own_step():
                self.optimizer.step()
        self.group.barrier().wait()
