"""A server by messages: receives the workers' requests, updates its shard, and replies.

`answer_requests` sends and receives; `Updates` decides with the ledger, and knows no transport.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.group import ANYONE, Group, Receipt, Work
from shoal.errors import MemberError
from shoal.strategies.exchange.rules import Robust
from shoal.strategies.guard import ROW, Guard
from shoal.strategies.server.ledger import Ledger, Push, VersionedUpdate, push_event
from shoal.strategies.server.messages import (
    Reply,
    Request,
    RequestKind,
    decoded,
    empty_header,
    send_all,
    text_of_pause,
)
from shoal.strategies.server.push_codec import PushFormat
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.survivors import LostWorker, Survivors
from shoal.strategies.strategy import EndOfTurns, Serving, Turn

Record = Callable[[dict[str, Any]], None]


@final
class Updates:
    """One server's weights and ledger, which change together: a request goes in, replies come out.

    With g the gradient of a push, p its part of the samples of a step, τ its staleness, θ the weights now and θ′ those
    of the gradient::

        gathered            g = Σ gᵢ / Σ pᵢ            one update per step; Σ pᵢ = 1 unless some were dropped
        compensation λ      g ← g + (λ/p)·g⊙g⊙(θ − θ′)    for the mean gradient g/p: Zheng et al. 2017, DC-ASGD
        damping             lr ← lr / (1 + τ)            Zhang et al. 2016, staleness-aware

    Every loss is divided by the samples of a whole step, so the updates of one step add up to one machine's, for SGD.
    """

    def __init__(
        self,
        shard: Shard,
        config: ServerConfig,
        workers: int,
        guard: Guard,
        like: Tensor,
        robust: Robust | None = None,
        gives_turns: bool = False,
    ) -> None:
        """`robust` is the rule in place of the sum, where the pushes of a step are gathered.

        With `gives_turns`, this server tells workers which share to compute next: one of them does.
        """
        self.shard, self._config, self._workers = shard, config, workers
        self._guard, self._like = guard, like.double()
        self._robust, self._gives_turns = robust, gives_turns
        self._needed = workers - config.backup if config.gathers else 0
        """Pushes that make an update together; 0: each is one."""
        self.ledger = Ledger(workers, config.bound, self._needed, config.takes_turns)
        self._without_turn: set[int] = set()
        """Workers that have asked for a turn while none was free, and others were under way."""
        self.losses: list[LostWorker] = []
        self._requests: dict[int, Request] = {}
        """The last request of each worker."""
        self._rows = [[0.0] * ROW for _ in range(workers)]
        """Each worker's last report to the guard."""
        first = [weights.clone() for weights in shard.weights] if config.compensation else []
        self._sent = dict.fromkeys(range(workers), first)
        """The weights that each worker has, if delays are compensated; all start with the same."""
        self._loss = 0.0

    def memory_for(self, rank: int, request: Request) -> list[Tensor]:
        """Memory for the gradients of a push: a repetition must not overwrite gradients that are held."""
        shard = self.shard
        is_new = self.ledger.is_new(rank, request.sequence)
        return shard.row(rank) if is_new else shard.discarded()

    def receive(
        self, rank: int, request: Request, stop_signal: int, record: Record
    ) -> list[tuple[int, Reply]]:
        """Handle a request whose gradients are in `memory_for`; the replies to send now, each with the weights."""
        ledger = self.ledger
        if rank not in ledger.turns.living:
            return []
        if request.kind == RequestKind.READ:
            return [(rank, self._reply(rank, request))]
        if request.kind == RequestKind.HELLO:
            sequence, step = ledger.resume(rank)
            return [(rank, self._reply(rank, request)._replace(sequence=sequence, step=step))]
        if rank not in self._requests or request.sequence >= self._requests[rank].sequence:
            self._requests[rank] = request
        if request.kind == RequestKind.PUSH:
            push, dropped = Push(rank, request.sequence, request.version, request.step), ledger.dropped
            update = ledger.receive(push)
            if ledger.dropped > dropped:
                record(push_event("dropped", push, version=ledger.version))
            if update is not None:
                self._apply(update, record)
        else:
            ledger.pull(rank, request.sequence, request.step)
        ledger.note_stop(request.stop_signal or stop_signal)
        return self._replies(ledger.release())

    def lose(self, rank: int, record: Record) -> list[tuple[int, Reply]]:
        """Go on without a worker: another one gets its turn; the replies to send now."""
        turn = self.ledger.lose(rank)
        self._without_turn.discard(rank)
        self._rows[rank] = [0.0] * ROW
        loss = LostWorker(rank, self.ledger.version, -1 if turn is None else turn.step)
        self.losses.append(loss)
        record({"event": "lost", **loss._asdict(), "time_ns": time.time_ns()})
        return self._replies([])

    def _replies(self, released: Sequence[int]) -> list[tuple[int, Reply]]:
        """The replies to workers that may go on: at once or, where they take turns, with a turn or when all meet."""
        takers = {rank for rank in released if self._gives_turns and self._requests[rank].end}
        self._without_turn |= takers
        replies = [(rank, self._reply(rank, self._requests[rank])) for rank in released if rank not in takers]
        for rank in sorted(self._without_turn):
            request = self._requests[rank]
            turn = self.ledger.turns.take(rank, request.sequence, request.first, request.end)
            if turn is None and self._all_meet(request):
                turn = self.ledger.end_of_turns(request.first, request.end)
            if turn is not None:
                replies.append((rank, self._reply(rank, request, turn)))
        self._without_turn.difference_update(rank for rank, _ in replies)
        return replies

    def _all_meet(self, request: Request) -> bool:
        """Whether this worker meets the others now: all have asked for a turn, and every turn is finished.

        Then all get the same answer, and every lost worker is lost for all of them.
        """
        turns, segment = self.ledger.turns, (request.first, request.end)
        all_ask = self._without_turn >= turns.living
        return turns.has_ended(*segment) or (all_ask and turns.is_over(*segment))

    def _apply(self, update: VersionedUpdate, record: Record) -> None:
        requests = [self._requests[push.rank] for push in update.pushes]
        for push, request in zip(update.pushes, requests, strict=True):
            self._rows[push.rank] = [request.loss, request.part, request.square, 0.0]
        ranks = [push.rank for push in update.pushes]
        rows = [self._rows[rank] for rank in ranks] if self._needed else self._rows
        verdict = self._guard.decide(rows, self._like)
        parts = sum(request.part for request in requests)
        self._loss = verdict.loss.item()
        if len(ranks) < self._needed + self._config.backup and parts:
            self._loss /= parts  # the samples of the workers that were dropped are missing
        if not verdict.may_update:
            self._rows = [[0.0] * ROW for _ in self._rows]  # a bad push counts once
            self.ledger.skip()
        if verdict.may_update and self._needed:
            self._gathered(ranks, parts, requests[0].lr)
        elif verdict.may_update:
            self._at_once(update, requests[0])
        for event in update.events(is_skipped=not verdict.may_update):
            record(event)

    def _gathered(self, ranks: Sequence[int], parts: float, lr: float) -> None:
        shard, robust = self.shard, self._robust
        if robust is None:
            shard.sum_rows(ranks)
        else:
            for rows, out in zip(shard.rows_of(ranks), shard.gradients, strict=True):
                torch.mul(robust.rule(torch.stack(rows), robust.bad), len(rows), out=out)
        if len(ranks) < self._workers and parts:
            for gradients in shard.gradients:
                gradients.div_(parts)
        shard.update(lr)

    def _at_once(self, update: VersionedUpdate, request: Request) -> None:
        shard, config = self.shard, self._config
        (push,) = update.pushes
        for row, gradients in zip(shard.row(push.rank), shard.gradients, strict=True):
            gradients.copy_(row)
        if config.compensation and request.part:
            compensate(
                shard.gradients, shard.weights, self._sent[push.rank], config.compensation / request.part
            )
        shard.update.without_clipping(damped(request.lr, update.staleness(push), config))

    def _reply(self, rank: int, request: Request, turn: Turn | EndOfTurns | None = None) -> Reply:
        """The answer to a request; the worker has these weights from now on."""
        ledger = self.ledger
        if self._config.compensation:
            self._sent[rank] = [weights.clone() for weights in self.shard.weights]
        step = ledger.version if self._needed else 0
        reply = Reply(
            request.sequence,
            ledger.version,
            step=step,
            loss=self._loss,
            **ledger.counts(),
            losses=len(self.losses),
        )
        if turn is not None:
            return reply.with_turn(turn)
        # After a push, the worker has finished one step more than before it. If it is behind, it skips to `step` and
        # asks no more before it is there: it must learn now that it stops.
        finished = max(request.step + (request.kind == RequestKind.PUSH), step)
        return reply._replace(stop_signal=0 if request.end else ledger.stop_signal_after(finished))


def answer_requests(
    world: Group,
    updates: Updates,
    serving: Serving = Serving(),  # noqa: B008 (immutable)
    survivors: Survivors | None = None,
    push_format: PushFormat | None = None,
) -> str:
    """Answer requests in the order in which they arrive, until the workers pause; the text that they give.

    With `survivors`, a worker that dies is left out, and the others are answered. Pushes are encoded if they have a
    `push_format`.
    """
    shard, header = updates.shard, empty_header(Request)

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
            replies = updates.lose(lost, serving.record)
            survivors.note(updates.losses)
            send(replies)
        rank, request = receipt.source, decoded(Request, header)
        if request.kind == RequestKind.PAUSE:
            return text_of_pause(world, rank, request)
        number = rank if survivors is None else survivors.first_number(rank)
        if request.kind == RequestKind.PUSH:
            rows = updates.memory_for(number, request)
            if push_format is None:
                shard.receive(world, rank, rows)
            else:
                message = push_format.empty_message(request.training_step)
                if message.numel():  # a server of a small model may hold nothing
                    world.recv(message, rank).wait()
                push_format.decode(message, number, request.training_step, rows)
        send(updates.receive(number, request, serving.stop_signal(), serving.record))


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


@torch.no_grad()
def compensate(
    gradients: Sequence[Tensor], weights: Sequence[Tensor], seen: Sequence[Tensor], strength: float
) -> None:
    """g ← g + strength·g⊙g⊙(θ − θ′), where θ′ are the weights that the gradients were computed with."""
    for gradient, now, before in zip(gradients, weights, seen, strict=True):
        gradient.addcmul_(gradient.square(), now - before, value=strength)


def damped(lr: float, staleness: int, config: ServerConfig) -> float:
    """The learning rate of an update, divided by 1 + its staleness if the settings say so."""
    return lr / (1 + staleness) if config.damping else lr


def clip_alone(gradients: Iterable[Tensor], row: Sequence[float], largest: float | None) -> None:
    """Scale the gradient of a share, in place, as if the mean gradient of its samples had at most the norm `largest`.

    `row` is the guard's: it has the share's part of the samples of a step, and the squared norm of the gradient, which
    is that part of the mean gradient.
    """
    _, part, square, _ = row
    norm = square**0.5
    if largest is not None and norm > largest * part:
        for gradient in gradients:
            gradient.mul_(largest * part / norm)
