"""A worker that updates the weights of its server itself: takes the mutex in place of sending a message."""

from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import wait_until
from shoal.config.sections.server import ServerConfig
from shoal.events.spans import MAPPED
from shoal.strategies.buckets.gradient_slots import ABSENT
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.mapped.shard import MappedNumbers, MappedShard
from shoal.strategies.server.updates import compensate, damped
from shoal.strategies.server.wire import HEADER_BYTES, Kind, Reply, Request, pause_servers
from shoal.strategies.strategy import Turn


@final
class MappedClient:
    """Answers a worker's requests as a server would, on the weights and the journal that all ranks map.

    Phase 1, ask the guard. Phase 2, with the mutex: update the weights with this worker's gradients, write an entry.
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
        shard = MappedShard(layout, parts.update, world)
        self._weights, self._update = shard.weights, shard.update
        self._journal, rows, self._mutex, self._bell = MappedNumbers.of(world, workers, config.bound)
        # As a numpy array: operations on a few numbers take a tenth of torch's time, in every step.
        self._rows = rows.numpy()
        self.replies: list[Reply] = []
        """The last reply, of the one server."""
        self._sequence = self._version = 0
        self._share = -1
        self._pauses = 0

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
        """Do what a server does with a request; the parameters then are its newest weights."""
        journal, rank = self._journal, self._world.rank
        self._world.beat()  # it may not communicate for a whole epoch
        if request.kind in (Kind.PULL, Kind.PUSH):
            self._sequence += 1
        may_update = gradients and self._may_update(request)
        if not self._is_open():
            wait_until(self._world, self._is_open, "the server")
        with self._mutex:
            if gradients:
                self._push(request, may_update)
            elif request.kind == Kind.PULL:
                journal.finish(rank, self._sequence, request.step)
            if reads_at_once := (request.kind in (Kind.READ, Kind.HELLO) or journal.may_go_on(rank)):
                self._read(request)
        if not reads_at_once:
            wait_until(self._world, lambda: journal.may_go_on(rank), "the slowest worker")
            with self._mutex:
                self._read(request)
        # As with messages: a request, a reply, the gradients and the weights.
        self._world.note_transfer(MAPPED, HEADER_BYTES + self._num_bytes * (1 + gradients))
        return self.replies[0]

    def _is_open(self) -> bool:
        """Whether the server has saved, and has room for an entry."""
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
        """Update the weights, and write an entry."""
        journal, config = self._journal, self._config
        if may_update:
            if config.compensation and request.part:
                # The parameters are still the weights that the gradient was computed with.
                strength = config.compensation / request.part
                compensate(self.gradients, [*self._weights.params.values()], self._params, strength)
            self._update.without_clipping(damped(request.lr, journal.version - self._version, config))
        self._weights.drop_gradients()
        journal.write(
            self._world.rank, self._sequence, self._version, request.step, self._share, not may_update
        )
        journal.note_stop(request.stop_signal)

    def _read(self, request: Request) -> None:
        """Copy the weights, and take a turn if the worker asks for one."""
        journal, rank = self._journal, self._world.rank
        self._weights.read()
        self._version = journal.version
        staleness_sum, staleness_max, pushes = journal.staleness
        reply = Reply(
            self._sequence,
            self._version,
            staleness_sum=staleness_sum,
            staleness_max=staleness_max,
            pushes=pushes,
            skipped=journal.skipped,
        )
        self._share = -1
        if request.kind == Kind.HELLO:
            self._sequence, step = journal.resume(rank)
            reply = reply._replace(sequence=self._sequence, step=step)
        elif request.end:
            turn = journal.next_turn(request.first, request.end)
            if isinstance(turn, Turn):
                self._share = turn.share
                reply = reply._replace(turn_step=turn.step, turn_share=turn.share, end=request.end)
            else:
                reply = reply._replace(end=turn.step, stop_signal=turn.stop_signal)
        elif request.kind == Kind.PUSH:
            reply = reply._replace(stop_signal=journal.stop_signal_after(request.step + 1))
        self.replies = [reply]

    def pause(self, text: str) -> None:
        """End the serving of the server, and give it a text. All workers call it, when none asks any more."""
        self._pauses += 1
        pause_servers(self._world, self.servers, text)
        if self._world.rank == 0:
            self._bell.ring()
