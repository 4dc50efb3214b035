"""One copy of the weights in memory that all workers of a machine map: each sums and updates its slice of it.

::

    rank 0      gradients 0 ──┐        ┌── sum of slice 0, update of slice 0 ──┐
                              ├─ all ──┤                                       ├─ all ── next forward
    rank 1      gradients 1 ──┘ wrote  └── sum of slice 1, update of slice 1 ──┘ wrote
                              weights are read          weights are written

Nothing is gathered: a weight that one worker has written is there for all. No worker writes weights before all have
finished backward, and none reads them before all have written.
"""

from collections.abc import Callable, Mapping
from typing import final

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.reduction import Op, reduce_into_first
from shoal.errors import ConfigError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.buckets.unused import Unused
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.pieces.freed_memory import return_freed_memory
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.update import Updated

ALL = 2**62
"""Bytes of a bucket: all gradients of one kind are one bucket, since nothing moves before all workers are ready."""


def check_maps_memory(group: Group, params: Mapping[str, Tensor]) -> None:
    """Refuse workers that do not see each other's memory."""
    on_cpu = all(param.is_cpu for param in params.values())
    if not group.maps_memory or not on_cpu:
        kind = "simulated links" if group.kind == "shm" else f"a group of kind {group.kind}"
        raise ConfigError(
            "one copy of the weights needs workers that see each other's memory, which "
            f"{kind if on_cpu else 'GPUs'} cannot offer",
            "Start all workers on one machine, with the model on its CPU and no simulated links; elsewhere use "
            "shoal.DistributedDataParallel (--strategy ddp).",
        )


def map_parameters(group: Group, params: Mapping[str, Tensor], bucket: Bucket) -> Tensor:
    """Move a bucket's parameters to flat memory that all workers map, and return it.

    A collective; weights are equal before. No worker may use them before a barrier.
    """
    weights = group.common(bucket.gradients.numel(), bucket.flat.dtype)
    for name, view in zip(bucket.names, bucket.split(weights), strict=True):
        if group.rank == 0:
            view.copy_(params[name].detach())
        params[name].data = view
    return weights


@final
class MappedWeights:
    """A layout's parameters in one memory of all workers, and the slices of it that this worker owns and updates.

    Its `reducer` copies gradients to memory that the others see, in buckets that `send` gets. The sync of a run and
    `shoal.OneCopy` both train with it. Constructing is a collective; all workers have equal weights before.
    """

    def __init__(
        self,
        group: Group,
        layout: Updated,
        on_final: OnFinal,
        send: Callable[[Bucket], Work],
        unused: Unused,
        final_in_backward: bool = True,
        num_piggyback: int = 0,
    ) -> None:
        self._group, self._params = group, layout.params
        for param in layout.params.values():
            param.data = param.data.contiguous()
        options = ReducerOptions(
            ALL, ALL, unused, final_in_backward=final_in_backward, num_piggyback=num_piggyback
        )
        self.reducer = Reducer(group, layout.params, on_final, send, options)
        self.slices = Slices(layout, group)
        self._gradients = [self._map(bucket) for bucket in self.reducer.buckets]
        """For each bucket, this worker's slice of all workers' gradients."""
        self._owned = {name: (owned, owned.grad) for name, owned in self.slices.params.items()}
        return_freed_memory()  # where the parameters were
        group.barrier().wait()

    def _map(self, bucket: Bucket) -> list[Tensor]:
        weights = map_parameters(self._group, self._params, bucket)
        gradients = self._group.views_of_all(bucket.gradients)
        # The sum of a slice is formed in rank 0's memory. Only the slice's owner reads and writes there.
        own = self.slices.add(bucket, weights, gradients[0])
        return [each[own] for each in gradients]

    def sum_gradients(self, divisor: float = 1) -> None:
        """Sum this worker's slice over the workers, once all have written their gradients, and divide the sum.

        The optimizer skips parameters for which no worker has a gradient, as on one machine.
        """
        for parts in self._gradients:
            reduce_into_first(Op.SUM, parts)
            if divisor != 1:
                parts[0].div_(divisor)
        for name, (owned, gradient) in self._owned.items():
            owned.grad = None if self._params[name].grad is None else gradient
