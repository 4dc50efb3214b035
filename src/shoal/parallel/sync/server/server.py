"""The worker that is a server: answers requests in the order in which they arrive."""

import json
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import ANYONE, Group
from shoal.config.schema import ServerConfig
from shoal.data.dataset import Batch
from shoal.parallel.exchange.robust import Robust
from shoal.parallel.piece import Piece
from shoal.parallel.strategy import Pause, Serving, Share, StepResult, Strategy, Sums
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.server.shards import Shard
from shoal.parallel.sync.server.updates import Record, Rules, Updates
from shoal.parallel.sync.server.wire import Kind, Request, empty_header, send_all
from shoal.parallel.sync.sync import SyncParts


@final
class ServerRank(Strategy):
    """One server. Phase 1, receive a request of any worker. Phase 2, update. Phase 3, reply to those that may go on.

    Costs, for n elements of its range: n in and n out for each push of each worker. A server that has W workers updates
    W times per step (asp, ssp), or once (bsp).
    """

    serves = True
    data_rank = 0

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        """`parts.group` has all servers, `world` all workers and, after them, the servers."""
        workers = world.size - parts.group.size
        self.data_size, self.copies = workers, alone()
        self._world = world
        sync_initial_state(world, parts.layout.pieces())
        self._shard = Shard(parts.layout, parts.update, parts.group, workers, config.gathers, world)
        robust = parts.exchange if isinstance(parts.exchange, Robust) else None
        gives_turns = parts.group.rank == 0 and config.mode == "asp"
        rules = Rules(config, workers, robust, gives_turns)
        self._updates = Updates(self._shard, rules, parts.guard, parts.layout.zero)
        self._is_first = parts.group.rank == 0
        self._ledger_name = f"server.{workers}.{parts.group.size}.ledger{parts.group.rank}"

    def serve(self, serving: Serving) -> Pause:
        """Answer requests until the workers pause."""
        # One server alone decides when to stop, so that all workers stop after the same step.
        stop_signal = serving.stop_signal if self._is_first else lambda: 0
        said: dict[str, Any] = json.loads(
            answer_requests(self._world, self._shard, self._updates, stop_signal, serving.record)
        )
        return Pause(**said)

    def step(self, share: Share, lr: float) -> StepResult:
        """A server does not train."""
        raise NotImplementedError("a server has no steps")

    def evaluate(self, batch: Batch) -> Sums:
        """A server does not evaluate."""
        raise NotImplementedError("a server does not evaluate")

    def pieces(self) -> list[Piece]:
        """The optimizer's state of this server's slices, and its ledger; the workers hold the weights."""
        ledger = torch.tensor(self._updates.ledger.state())
        return [*self._shard.pieces(), Piece.whole(self._ledger_name, ledger)]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this server's slices; its ledger, if it was saved with as many workers and servers."""
        self._shard.load(saved)
        if self._ledger_name in saved:
            self._updates.ledger.restore(saved[self._ledger_name].tolist())
        self._world.barrier().wait()


def answer_requests(
    world: Group,
    shard: Shard,
    updates: Updates,
    stop_signal: Callable[[], int] = lambda: 0,
    record: Record = lambda event: None,
) -> str:
    """Answer requests in the order in which they arrive, until the workers pause; the text that they give."""
    header = empty_header(Request)
    while True:
        receipt = world.recv(header, ANYONE)
        receipt.wait()
        rank, request = receipt.source, Request.decoded(header)
        if request.kind == Kind.PAUSE:
            text = torch.empty(request.step, dtype=torch.uint8)
            world.recv(text, rank).wait()
            return text.numpy().tobytes().decode()
        if request.kind == Kind.PUSH and not shard.is_mapped:
            memory = [each for each in updates.memory_for(rank, request) if each.numel()]
            for work in [world.recv(each, rank) for each in memory]:
                work.wait()
        replies = updates.receive(rank, request, stop_signal(), record)
        for work in [work for to, reply in replies for work in send_all(world, to, reply, shard.payload(to))]:
            work.wait()
