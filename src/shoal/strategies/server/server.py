"""The worker that is a server: answers requests in the order in which they arrive."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import ANYONE, Group, Receipt, Work
from shoal.config.sections.server import ServerConfig
from shoal.data.dataset import Batch
from shoal.errors import MemberError
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.rules import Robust
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.push_codec import PushFormat
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.survivors import Survivors
from shoal.strategies.server.updates import Record, Rules, Updates
from shoal.strategies.server.wire import (
    Kind,
    Reply,
    Request,
    decoded,
    empty_header,
    send_all,
    text_of_pause,
)
from shoal.strategies.strategy import Pause, Serving, Share, StepResult, Strategy, Sums


class ServingRank(Strategy):
    """A rank that holds weights for the workers, and does not train."""

    serves = True
    data_rank = 0

    def __init__(self, parts: SyncParts, world: Group) -> None:
        """`parts.group` has all servers, `world` all workers and, after them, the servers."""
        workers = world.size - parts.group.size
        self.data_size, self.copies = workers, alone()
        self.ledger_name = f"server.{workers}.{parts.group.size}.ledger{parts.group.rank}"
        """Under which its ledger is saved."""

    def step(self, share: Share, lr: float) -> StepResult:
        """A server does not train."""
        raise NotImplementedError("a server has no steps")

    def evaluate(self, batch: Batch) -> Sums:
        """A server does not evaluate."""
        raise NotImplementedError("a server does not evaluate")


@final
class ServerRank(ServingRank):
    """One server. Phase 1, receive a request of any worker. Phase 2, update. Phase 3, reply to those that may go on.

    Costs, for n elements of its range: n in and n out for each push of each worker. A server that has W workers updates
    W times per step (asp, ssp), or once (bsp).
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        super().__init__(parts, world)
        workers, self._world = self.data_size, world
        sync_initial_state(world, parts.layout.pieces())
        exchange = parts.exchange
        encodes = isinstance(exchange, Compressed)
        self._shard = Shard(parts.layout, parts.update, parts.group, workers, config.gathers, world, encodes)
        self._push_format = (
            PushFormat(exchange.config, self._shard.buckets, parts.group.rank, parts.group.size)
            if isinstance(exchange, Compressed)
            else None
        )
        robust = exchange if isinstance(exchange, Robust) else None
        rules = Rules(config, workers, robust, parts.group.rank == 0 and config.takes_turns)
        self._survivors = Survivors(world, workers) if config.on_lost == "continue" else None
        self._updates = Updates(self._shard, rules, parts.guard, parts.layout.zero)
        self._is_first = parts.group.rank == 0

    def serve(self, serving: Serving) -> Pause:
        """Answer requests until the workers pause."""
        # One server alone decides when to stop, so that all workers stop after the same step.
        stop_signal = serving.stop_signal if self._is_first else lambda: 0
        said: dict[str, Any] = json.loads(
            answer_requests(
                self._world,
                self._shard,
                self._updates,
                stop_signal,
                serving.record,
                self._survivors,
                self._push_format,
            )
        )
        return Pause(**said)

    def pieces(self) -> list[Piece]:
        """The optimizer's state of this server's slices, and its ledger; the workers hold the weights."""
        ledger = torch.tensor(self._updates.ledger.state())
        return [*self._shard.pieces(), Piece.whole(self.ledger_name, ledger)]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this server's slices; its ledger, if it was saved with as many workers and servers."""
        self._shard.load(saved)
        if self.ledger_name in saved:
            self._updates.ledger.restore(saved[self.ledger_name].tolist())
        self._world.barrier().wait()


def answer_requests(
    world: Group,
    shard: Shard,
    updates: Updates,
    stop_signal: Callable[[], int] = lambda: 0,
    record: Record = lambda event: None,
    survivors: Survivors | None = None,
    push_format: PushFormat | None = None,
) -> str:
    """Answer requests in the order in which they arrive, until the workers pause; the text that they give.

    With `survivors`, a worker that dies is left out, and the others are answered. Pushes are encoded if they have a
    `push_format`.
    """
    header = empty_header(Request)

    def send(replies: Sequence[tuple[int, Reply]]) -> None:
        works: list[Work] = []
        for to, reply in replies:
            rank = to if survivors is None else survivors.rank_now(to)
            works += send_all(world, rank, reply, shard.payload(to))
        for work in works:
            work.wait()
        if survivors is not None and any(reply.sends_to_meeting for _, reply in replies):
            survivors.meet(len(updates.losses))

    while True:
        receipt = world.recv(header, ANYONE)
        for lost in _deaths_before(receipt, survivors):
            assert survivors is not None
            replies = updates.lose(lost, record)
            survivors.note(updates.losses)
            send(replies)
        rank, request = receipt.source, decoded(Request, header)
        if request.kind == Kind.PAUSE:
            return text_of_pause(world, rank, request)
        number = rank if survivors is None else survivors.first_number(rank)
        if request.kind == Kind.PUSH:
            rows = updates.memory_for(number, request)
            if push_format is None:
                shard.receive(world, rank, rows)
            else:
                message = push_format.empty_message(request.training_step)
                if message.numel():  # a server of a small model may hold nothing
                    world.recv(message, rank).wait()
                push_format.decode(message, number, request.training_step, rows)
        send(updates.receive(number, request, stop_signal(), record))


def _deaths_before(receipt: Receipt, survivors: Survivors | None) -> Iterator[int]:
    """Wait for a message; the workers that die meanwhile and can be lost."""
    lost: set[int] = set()
    while True:
        try:
            receipt.wait()
        except MemberError as error:
            if survivors is None or error.reason != "died" or not survivors.can_lose(error.rank):
                raise
            if error.rank in lost:  # the group has given up, and would say the same for ever
                raise
            lost.add(error.rank)
            yield error.rank
        else:
            return
