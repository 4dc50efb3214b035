"""The parameter server: makes the strategy of every rank, and has the ranks that serve.

The mode and the machine decide how gradients and weights travel::

    bsp (the default)   messages. A worker's push is a header and its gradients, the server's reply a header and the new
                        weights. On one machine (`Group.maps_memory`) only the two headers are sent: each side reads
                        and writes gradients and weights where the other has mapped them. Also ssp with staleness 0.
    ssp, asp            on one machine, mapped memory and no message in a step: a worker takes a mutex and updates
                        weights, optimizer state and ledger itself (`mapped.py`); the server records and saves.
                        Messages, as with bsp, wherever `updates_in_place` says no: across machines, over gloo, with
                        several servers, compressed pushes, `on_lost continue` or an optimizer of the user's own.
    hogwild             no server: all workers update one mapped copy of the weights without a lock (`hogwild.py`).

`shoal.ParameterServer` (`library.py`) always uses messages. Messages and mapped memory share one ledger (`ledger.py`).

The `__init__` of this folder says which files a step passes through.
"""

import json
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import ANYONE, Group
from shoal.data.dataset import Batch
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.rules import Robust
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.state import read_part
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.hogwild import Hogwild
from shoal.strategies.server.ledger import Ledger
from shoal.strategies.server.mapped import map_numbers, map_weights
from shoal.strategies.server.messages import Request, decoded, empty_header, text_of_pause
from shoal.strategies.server.push_codec import PushFormat
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.survivors import Survivors
from shoal.strategies.server.updates import Updates, answer_requests
from shoal.strategies.server.worker import ServerWorker
from shoal.strategies.strategy import Pause, Serving, Share, StepResult, Strategy, Sums
from shoal.strategies.update import Update, Updated

READ_EVERY_S = 0.05
"""How often a server without messages reads the journal: so rarely that it leaves the cores to the workers. They ring
when they pause."""


def server_sync(parts: SyncParts, config: ServerConfig) -> Strategy:
    """A worker that trains or, for the last ranks of the world, a server."""
    if config.mode == "hogwild":
        return Hogwild(parts, config)
    world = parts.world or parts.group
    is_server = world.rank >= world.size - config.num_servers
    in_place = updates_in_place(parts, config, world)
    if is_server:
        return (MappedServer if in_place else ServerRank)(parts, config, world)
    return ServerWorker(parts, config, world, in_place)


def updates_in_place(parts: SyncParts, config: ServerConfig, world: Group) -> bool:
    """Whether workers update the weights of the server themselves: the same answer on all ranks.

    They need one memory, one server, and an update for each push. A push that is encoded is decoded by a server; a
    worker that may be lost (`on_lost continue`) must not leave half an update behind.
    """
    return (
        world.maps_memory
        and config.num_servers == 1
        and not config.gathers
        and config.on_lost == "stop"
        and not isinstance(parts.exchange, Compressed)
        and parts.update.has_known_state
    )


class ServingRank(Strategy):
    """A rank that holds weights for the workers and does not train."""

    serves = True
    data_rank = 0

    def __init__(self, parts: SyncParts, world: Group) -> None:
        """`parts.group` has all servers, `world` all workers and, after them, the servers."""
        self._world = world
        self.data_size, self.copies = world.size - parts.group.size, alone()
        self._ledger_name = f"server.{self.data_size}.{parts.group.size}.ledger{parts.group.rank}"
        sync_initial_state(world, parts.layout.pieces())

    _slices: Updated
    """The weights of this server."""
    _update: Update
    _ledger: Ledger

    def step(self, share: Share, lr: float) -> StepResult:
        """A server does not train."""
        raise NotImplementedError("a server has no steps")

    def evaluate(self, batch: Batch) -> Sums:
        """A server does not evaluate."""
        raise NotImplementedError("a server does not evaluate")

    def pieces(self) -> list[Piece]:
        """The optimizer's state of this server's slices, and its ledger; the workers hold the weights."""
        return [*self._update.pieces(), Piece.whole(self._ledger_name, torch.tensor(self._ledger.state()))]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this server's slices; its ledger, if it was saved with as many workers and servers."""
        for name, owned in self._slices.params.items():
            owned.copy_(read_part(name, saved[f"model.{name}"], self._slices.place_of(name), owned))
        self._update.load(saved)
        if self._ledger_name in saved:
            self._ledger.restore(saved[self._ledger_name].tolist())
        self._world.barrier().wait()


@final
class ServerRank(ServingRank):
    """A server by messages. Phase 1, receive a request. Phase 2, update. Phase 3, reply to workers that may go on.

    Costs, for n elements of its range: n in and n out for each push of each worker. A server that has W workers updates
    W times per step (asp, ssp), or once (bsp).
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        super().__init__(parts, world)
        workers, exchange = self.data_size, parts.exchange
        servers, encodes = parts.group, isinstance(exchange, Compressed)
        shard = Shard(parts.layout, parts.update, servers, workers, config.gathers, world, encodes)
        self._push_format: PushFormat | None = None
        if isinstance(exchange, Compressed):
            self._push_format = PushFormat(exchange.config, shard.buckets, servers.rank, servers.size)
        self._is_first = servers.rank == 0
        self._survivors = Survivors(world, workers) if config.on_lost == "continue" else None
        robust = exchange if isinstance(exchange, Robust) else None
        gives_turns = self._is_first and config.takes_turns
        self._updates = Updates(shard, config, workers, parts.guard, parts.layout.zero, robust, gives_turns)
        self._slices, self._update, self._ledger = shard.slices, shard.update, self._updates.ledger

    def serve(self, serving: Serving) -> Pause:
        """Answer requests until the workers pause."""
        if not self._is_first:
            # One server alone decides when to stop, so that all workers stop after the same step.
            serving = Serving(record=serving.record)
        text = answer_requests(self._world, self._updates, serving, self._survivors, self._push_format)
        return Pause(**json.loads(text))


@final
class MappedServer(ServingRank):
    """A server without messages: it shares its memory with workers that have `MappedClient`s, and computes nothing.

    Until the workers pause it reads the updates that they write, and records them as the events of the run.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        super().__init__(parts, world)
        self._slices, self._update = map_weights(parts.layout, parts.update, world)
        self._has_paused = False
        self._ledger, self._journal, _, self._mutex, self._bell = map_numbers(world, self.data_size, config)

    def serve(self, serving: Serving) -> Pause:
        """Record the workers' updates until they pause."""
        if self._has_paused:
            self._journal.end_pause()
        header = empty_header(Request)
        receipt = self._world.recv(header, ANYONE)
        while not receipt.done():
            self._look(serving)
            self._bell.wait(READ_EVERY_S)
        receipt.wait()
        self._look(serving)
        self._has_paused = True
        request = decoded(Request, header)  # these workers send no other message
        return Pause(**json.loads(text_of_pause(self._world, receipt.source, request)))

    def _look(self, serving: Serving) -> None:
        with self._mutex:
            self._ledger.note_stop(serving.stop_signal())
            updates = self._journal.read()
        for update, is_skipped in updates:
            for event in update.events(is_skipped):
                serving.record(event)
