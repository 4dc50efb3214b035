"""Mapped memory of a server and its workers: one copy of the weights, the optimizer's state, and a bell."""

import os
import select
import weakref
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import open_of_member
from shoal.optim.elementwise import Elementwise
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.state import PlaceOf, load_optimizer
from shoal.strategies.server.shards import buckets_of, load_slices
from shoal.strategies.update import Update, Updated, bare_step


@final
class CommonWeights:
    """One copy of a layout's parameters in memory that all members map and update.

    ::

        backward          gradients, where autograd has put them
        take_gradients    these tensors are the gradients of the common weights: nothing is copied
        the update        changes the common weights
        read              copies them to the layout's parameters, while they are in the caches of this core

    A worker computes with its own copy: weights of one version, while others update the common ones.

    Costs, with P bytes of parameters: the update of one machine, in memory that other cores write; P copied.
    """

    def __init__(self, layout: Updated, group: Group) -> None:
        """They start as rank 0's parameters. A collective."""
        self.span, self.zero = layout.span, layout.zero
        self.sharded_over, self.repeated = layout.sharded_over, layout.repeated
        self.place_of, self.all_norms = layout.place_of, layout.all_norms
        self._group = group
        common: dict[str, Tensor] = {}
        for bucket in buckets_of(layout.params):
            memory = group.common(bucket.flat.numel(), bucket.flat.dtype)
            common |= zip(bucket.names, bucket.split(memory), strict=True)
        self.params = {name: common[name] for name in layout.params}
        self._own = layout.params
        self.write()

    def take_gradients(self) -> list[str]:
        """Have the next update use this worker's gradients; the names of parameters without one, which it skips."""
        for weights, own in zip(self.params.values(), self._own.values(), strict=True):
            weights.grad = own.grad
        return [name for name, weights in self.params.items() if weights.grad is None]

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the next update. A caller may change them in place."""
        return [gradient for weights in self.params.values() if (gradient := weights.grad) is not None]

    def drop_gradients(self) -> None:
        """Forget the gradients, so that the next backward pass can use their memory."""
        for weights in self.params.values():
            weights.grad = None

    @torch.no_grad()
    def read(self) -> None:
        """Make the layout's parameters the weights as they are now."""
        torch._foreach_copy_([*self._own.values()], [*self.params.values()])  # pyright: ignore[reportPrivateUsage]

    @torch.no_grad()
    def write(self) -> None:
        """Make the weights rank 0's parameters. A collective."""
        if self._group.rank == 0:
            torch._foreach_copy_([*self.params.values()], [*self._own.values()])  # pyright: ignore[reportPrivateUsage]
        self._group.barrier().wait()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load saved weights, for all members."""
        load_slices(self, saved)


@final
class MappedState:
    """Keeps the state of an optimizer of ours in memory that all members map. Making it is a collective.

    It starts at zero, and all members map the same memory: a step of any member is a step of the one optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, world: Group) -> None:
        assert isinstance(optimizer, Elementwise)  # `updates_in_place`
        self._optimizer = optimizer
        self._mapped: dict[Tensor, dict[str, Tensor]] = {}
        for group in optimizer.param_groups:
            params: list[Tensor] = group["params"]
            for name in optimizer.state_names(group):
                for dtype in dict.fromkeys(param.dtype for param in params):
                    of_dtype = [param for param in params if param.dtype == dtype]
                    numels = [param.numel() for param in of_dtype]
                    memory = world.common(sum(numels), dtype)
                    for param, own in zip(of_dtype, memory.split(numels), strict=True):
                        self._mapped.setdefault(param, {})[name] = own.view(param.shape)
            if optimizer.counts_steps:
                # Through numpy, which makes it a tensor that is no view: the optimizer counts in it.
                counts = torch.from_numpy(world.common(len(params), torch.float32).numpy())
                for param, count in zip(params, counts.unbind(), strict=True):
                    self._mapped.setdefault(param, {})["step"] = count
        self._use_mapped()

    def _use_mapped(self) -> None:
        for param, own in self._mapped.items():
            self._optimizer.state[param] = dict(own)

    def step(self) -> None:
        """Step the optimizer."""
        bare_step(self._optimizer)()

    def settle(self) -> None:
        """Return at once: the state is in memory."""

    def load(self, params: Mapping[str, Tensor], place_of: PlaceOf, saved: Mapping[str, Tensor]) -> None:
        """Load a saved state, for all members."""
        load_optimizer(params, place_of, self._optimizer, saved)
        for param, own in self._mapped.items():
            loaded = self._optimizer.state.get(param, {})
            for name, tensor in own.items():
                tensor.copy_(loaded[name]) if name in loaded else tensor.zero_()
        self._use_mapped()


@final
class MappedShard:
    """All weights in memory that the server and its workers map, and this rank's optimizer over them.

    Memory of a machine: weights and optimizer state once, and a copy of the weights for each worker.
    """

    def __init__(self, layout: Updated, update: Update, world: Group) -> None:
        """A collective of the world."""
        self.weights = CommonWeights(layout, world)
        self.update = update.of(self.weights, lambda optimizer, params, make: MappedState(optimizer, world))
        world.barrier().wait()

    def pieces(self) -> list[Piece]:
        """The optimizer's state; the workers hold the weights."""
        return self.update.pieces()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load weights and optimizer state, for all ranks."""
        self.weights.load(saved)
        self.update.load(saved)


@final
class Bell:
    """Wakes one rank: `ring` ends the `wait` of the owner, the current one or, if it does not wait, the next.

    It is a pipe that all ranks have open. The owner sleeps in the kernel and takes no processor from the others.
    Making it is a collective of a group that `maps_memory`.
    """

    def __init__(self, group: Group, owner: int) -> None:
        self._end = pipe_in = -1
        if group.rank == owner:
            self._end, pipe_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        address = torch.tensor([os.getpid(), pipe_in])
        group.broadcast(address, owner).wait()
        pid, descriptor = address.tolist()
        if group.rank != owner:
            # Open for reading as well: a pipe that no process can read would refuse a late ring.
            self._end = open_of_member(pid, descriptor, os.O_RDWR)
        weakref.finalize(self, _close, self._end, pipe_in)
        group.barrier().wait()  # the owner may end before the others have opened it

    def ring(self) -> None:
        """Wake the owner; for the others."""
        os.write(self._end, b"!")

    def wait(self, at_most_s: float) -> None:
        """Sleep until another member rings; for the owner."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if poll.poll(1000 * at_most_s):
            os.read(self._end, select.PIPE_BUF)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
