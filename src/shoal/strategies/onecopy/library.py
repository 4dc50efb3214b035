"""`shoal.OneCopy`: one copy of the weights for all workers of a machine, in a training loop of your own."""

from collections.abc import Callable, Iterable
from typing import final

import torch
from torch import Tensor, nn

from shoal.comm.group import Finished, Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number
from shoal.errors import ConfigError
from shoal.optim.over import check_function
from shoal.strategies.buckets.unused import Unused, refuse_dropped
from shoal.strategies.library.divided_training import DividedTraining
from shoal.strategies.onecopy.mapped_weights import MappedWeights, check_maps_memory
from shoal.strategies.replicas.sync_batchnorm import give_group


@final
class OneCopy(DividedTraining):
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
        check_function(make_optimizer, "a worker may have a part of the parameters only")
        super().__init__(
            model, make_optimizer, group, check_maps_memory, "call shoal.OneCopy with a new model"
        )
        self._has_sync_batchnorm = give_group(model, self.group)
        self._weights = MappedWeights(
            self.group, self._layout, lambda param, callback: lambda: None, lambda bucket: Finished(), unused
        )
        self._set_up.fix_memory(self._trained)
        self._counts = self.group.views_of_all(self.group.empty(1, torch.float64))
        self._is_summed = False
        if not self._weights.slices.params:
            raise ConfigError(
                f"the model is too small to be divided among {self.group.size} workers: "
                f"rank {self.group.rank} owns nothing",
                "Use fewer workers, or shoal.DistributedDataParallel.",
            )
        self._divide(self._weights.slices)

    def zero_grad(self) -> None:
        """Drop the gradients of all passes since the last step. `step` does so, too."""
        self._is_summed = False
        super().zero_grad()

    def _begin_pass(self, outermost: bool = False) -> None:
        super()._begin_pass(outermost)
        if self._is_summed:
            raise ConfigError(
                "a backward pass follows after param.grad was read or changed: the gradients are summed already",
                "Clip or read gradients after the last backward pass of a step, or call zero_grad() first.",
            )

    def _end_pass(self) -> None:
        self._shown.show(has_sums=False)

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
        for name in self._hide():
            if (owned := self._slices.params.get(name)) is not None:
                owned.grad = None  # as on one machine, the optimizer skips what the program has dropped
        if self._has_samples:
            self._update_slices(clip_norm)
        self.group.barrier().wait()
        self.zero_grad()

    @torch.no_grad()
    def _sum(self, num_samples: int | None = None) -> None:
        """Average the gradients over the workers; each has its slices of the result."""
        self._set_up.check()
        self._hide()
        reached = ((name, self._trained[name]) for name in self._trained if name in self._reached)
        if dropped := [name for name, param in reached if param.grad is None]:
            refuse_dropped(self.group, dropped, len(self._trained))
        reducer, weight = self._weights.reducer, 1 if num_samples is None else num_samples
        self._counts[self.group.rank].fill_(weight)
        # A worker without samples has no gradient, or one of a mean over nothing: it counts as zero.
        if weight:
            reducer.prepare(None if weight == 1 else float(weight))
        reducer.complete()
        reducer.wait()
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
            self._weights.sum_gradients(divisor=total)
        self._has_samples, self._is_summed = bool(total), True
        for param in self._trained.values():
            param.grad = None
        self._shown.show(has_sums=True)
