"""Updates without messages: workers on one machine update the weights of their server themselves (asp, ssp).

Weights, optimizer state and ledger are in memory that all ranks map. A worker takes the mutex in place of sending a
message, changes the weights, records its push in the ledger, and writes the update to a journal. The server reads the
journal and records the updates as events of the run. So an update costs a few stores and no message.

No message is lost or repeated here: a worker writes its own update, in the order of its program. Weights and ledger are
saved together, while no worker holds the mutex. A worker that is killed in the middle of an update leaves weights that
are half updated: the run stops (`on_lost stop`), and is resumed from its last checkpoint. `on_lost continue` therefore
uses messages.
"""

import os
import select
import weakref
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import Mutex, open_of_member, wait_until
from shoal.events.spans import MAPPED
from shoal.optim.elementwise import Elementwise
from shoal.strategies.buckets.gradient_slots import ABSENT
from shoal.strategies.guard import ROW
from shoal.strategies.pieces.state import PlaceOf, load_optimizer
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.ledger import Journal, Ledger, Push
from shoal.strategies.server.messages import HEADER_BYTES, Reply, Request, RequestKind, pause_servers
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import buckets_of
from shoal.strategies.server.updates import compensate, damped
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


def map_weights(layout: Updated, update: Update, world: Group) -> tuple[CommonWeights, Update]:
    """All weights in memory that the server and its workers map, and this rank's update of them. A collective.

    Memory of a machine: weights and optimizer state once, and a copy of the weights for each worker.
    """
    weights = CommonWeights(layout, world)
    mapped = update.of(weights, lambda optimizer, params, make: MappedState(optimizer, world))
    world.barrier().wait()
    return weights, mapped


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
        for descriptor in {self._end, pipe_in} - {-1}:
            weakref.finalize(self, os.close, descriptor)
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


def map_numbers(
    world: Group, workers: int, config: ServerConfig
) -> tuple[Ledger, Journal, Tensor, Mutex, Bell]:
    """The numbers about updates that all ranks share: ledger, journal, and each worker's last report to the guard.

    The mutex is held by the rank that changes weights, ledger and journal, or reads them. The bell wakes the server. A
    collective of the world.
    """
    num_words = Ledger.num_words(workers)
    memory = world.common(num_words + Journal.num_words(), torch.int64)
    rows = world.common(workers * ROW, torch.float64).view(workers, ROW)
    words = memory.numpy().data  # its elements are ints, read in 40 ns
    ledger = Ledger(workers, config.bound, takes_turns=config.takes_turns, words=words[:num_words])
    journal = Journal(words[num_words:], workers)
    return ledger, journal, rows, Mutex(world, "the weights of the server"), Bell(world, owner=workers)


@final
class MappedClient:
    """Answers a worker's requests as a server would, with the weights and the ledger that all ranks map.

    Phase 1, ask the guard. Phase 2, with the mutex: update the weights with this worker's gradients, and record that.
    Phase 3, copy the weights: at once or, with a bound, when no worker is too far behind.

    Costs, with P bytes of parameters: the update of one machine, and P copied out (`CommonWeights`). The mutex is held
    for these two, a small part of a step.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        """A collective of the world: the server makes a `MappedServer`."""
        layout, workers = parts.layout, parts.group.size
        self._world, self._config, self._guard = world, config, parts.guard
        self._params, self._zero = list(layout.params.values()), layout.zero
        self._num_bytes = sum(param.nbytes for param in self._params)
        self.servers = range(workers, world.size)
        self._weights, self._update = map_weights(layout, parts.update, world)
        self._ledger, self._journal, rows, self._mutex, self._bell = map_numbers(world, workers, config)
        # As a numpy array: operations on a few numbers take a tenth of torch's time, in every step.
        self._rows = rows.numpy()
        self.replies: list[Reply] = []
        """The last reply."""
        self._sequence = self._version = self._pauses = 0

    def take_gradients(self) -> list[str]:
        """Push this worker's gradients with the next request; the names of parameters without one, where it has −0."""
        missing = self._weights.take_gradients()
        for name in missing:
            weights = self._weights.params[name]
            weights.grad = torch.full_like(weights, ABSENT)
        return missing

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the next push. A caller may change them in place."""
        return self._weights.gradients

    def ask(self, request: Request, gradients: bool = False) -> Reply:
        """Do the server's part of a request; the parameters are then its newest weights."""
        ledger, rank = self._ledger, self._world.rank
        self._world.beat()  # it may not communicate for a whole epoch
        if request.kind in (RequestKind.PULL, RequestKind.PUSH):
            self._sequence += 1
        may_update = gradients and self._may_update(request)
        if not self._is_open():
            wait_until(self._world, self._is_open, "the server")
        with self._mutex:
            if gradients:
                self._push(request, may_update)
            elif request.kind == RequestKind.PULL:
                ledger.pull(rank, self._sequence, request.step)
            ledger.release()
            if reads_at_once := ledger.is_released(rank):
                self._read(request)
        if not reads_at_once:
            wait_until(self._world, lambda: ledger.is_released(rank), "the slowest worker")
            with self._mutex:
                self._read(request)
        # As with messages: a request, a reply, the gradients and the weights.
        self._world.note_transfer(MAPPED, HEADER_BYTES + self._num_bytes * (1 + gradients))
        return self.replies[0]

    def _is_open(self) -> bool:
        """Whether the server has saved, and the journal has room."""
        return self._journal.is_over(self._pauses) and self._journal.has_room()

    def _may_update(self, request: Request) -> bool:
        """Ask the guard about this worker's gradient; it raises if a number that is not finite ends the run."""
        rank, row = self._world.rank, [request.loss, request.part, request.square, 0.0]
        rows = self._rows.tolist()
        rows[rank] = row
        may_update = self._guard.decide(rows, self._zero, is_alone=True).may_update
        # A bad push counts once.
        self._rows[rank] = row if may_update else 0.0
        return may_update

    def _push(self, request: Request, may_update: bool) -> None:
        """Update the weights, and record the push."""
        ledger, config = self._ledger, self._config
        if may_update:
            if config.compensation and request.part:
                # The parameters are still the weights that the gradient was computed with.
                strength = config.compensation / request.part
                compensate(self.gradients, [*self._weights.params.values()], self._params, strength)
            self._update.without_clipping(damped(request.lr, ledger.version - self._version, config))
        self._weights.drop_gradients()
        update = ledger.receive(Push(self._world.rank, self._sequence, self._version, request.step))
        assert update is not None  # nothing is gathered or repeated here
        if not may_update:
            ledger.skip()
        self._journal.write(update, is_skipped=not may_update)
        ledger.note_stop(request.stop_signal)

    def _read(self, request: Request) -> None:
        """Copy the weights, and take a turn if the worker asks for one."""
        ledger, rank = self._ledger, self._world.rank
        self._weights.read()
        self._version = ledger.version
        reply = Reply(self._sequence, self._version, **ledger.counts())
        if request.kind == RequestKind.HELLO:
            self._sequence, step = ledger.resume(rank)
            reply = reply._replace(sequence=self._sequence, step=step)
        elif request.end:
            turn = ledger.turns.take(rank, self._sequence, request.first, request.end)
            reply = reply.with_turn(turn or ledger.end_of_turns(request.first, request.end))
        elif request.kind == RequestKind.PUSH:
            reply = reply._replace(stop_signal=ledger.stop_signal_after(request.step + 1))
        self.replies = [reply]

    def pause(self, text: str) -> None:
        """End the serving of the server, and give it a text. All workers call it, when none asks any more."""
        self._pauses += 1
        pause_servers(self._world, self.servers, text)
        if self._world.rank == 0:
            self._bell.ring()
