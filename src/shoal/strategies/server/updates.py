"""What a server does with a request: update its shard, and reply to the workers that may go on. Knows no transport."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from shoal.config.sections.server import ServerConfig
from shoal.strategies.exchange.rules import Robust
from shoal.strategies.guard import ROW, Guard
from shoal.strategies.server.ledger import Ledger, Push, VersionedUpdate
from shoal.strategies.server.shards import Shard
from shoal.strategies.server.survivors import Loss
from shoal.strategies.server.turns import BoundedTurns, TurnRules, Turns
from shoal.strategies.server.wire import Kind, Reply, Request
from shoal.strategies.strategy import Turn

Record = Callable[[dict[str, Any]], None]


class Rules(NamedTuple):
    """How pushes become updates."""

    config: ServerConfig
    workers: int
    robust: Robust | None = None
    """The rule in place of the sum, where the pushes of a step are gathered."""
    gives_turns: bool = False
    """Whether this server tells workers which share to compute next: one of them does."""

    @property
    def needed(self) -> int:
        """Pushes that make an update together; 0: each is one."""
        return self.workers - self.config.backup if self.config.gathers else 0

    def turns(self) -> TurnRules:
        """Who computes which share, where this server decides it."""
        bound = self.config.bound
        return Turns(self.workers) if bound is None else BoundedTurns(self.workers, bound)

    def ledger(self) -> Ledger:
        """Which push counts. Where workers take turns, these bound how far apart workers are."""
        bound = None if self.config.takes_turns else self.config.bound
        return Ledger(self.workers, bound, self.needed)


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

    def __init__(self, shard: Shard, rules: Rules, guard: Guard, like: Tensor) -> None:
        self._shard, self._rules, self._guard, self._like = shard, rules, guard, like.double()
        self.ledger = rules.ledger()
        self._turns = rules.turns()
        self._finished: dict[int, Turn | None] = {}
        """The turn that each worker has finished last, where it takes turns."""
        self._without_turn: set[int] = set()
        """Workers that have asked for a turn while none was free, and others were under way."""
        self._met: tuple[int, int] | None = None
        """The last steps, from the first to the end, whose turns are finished and whose workers have met."""
        self.losses: list[Loss] = []
        self._requests: dict[int, Request] = {}
        """The last request of each worker."""
        self._rows = [[0.0] * ROW for _ in range(rules.workers)]
        """Each worker's last report to the guard."""
        first = [weights.clone() for weights in shard.weights] if rules.config.compensation else []
        self._sent = dict.fromkeys(range(rules.workers), first)
        """The weights that each worker has, if delays are compensated; all start with the same."""
        self._loss = 0.0
        self._stop_signal = 0
        self._stop_at: int | None = None
        self._staleness_sum = self._staleness_max = self._pushes = 0

    def memory_for(self, rank: int, request: Request) -> list[Tensor]:
        """Where the gradients of a push go: a repetition must not overwrite what is held."""
        shard = self._shard
        is_new = self.ledger.is_new(rank, request.sequence)
        return shard.row(rank) if is_new else shard.discarded()

    def receive(
        self, rank: int, request: Request, stop_signal: int, record: Record
    ) -> list[tuple[int, Reply]]:
        """Handle a request whose gradients are in `memory_for`; the replies to send now, each with the weights."""
        ledger = self.ledger
        if rank in ledger.lost:
            return []
        if request.kind == Kind.READ:
            return [(rank, self._reply(rank, request))]
        if request.kind == Kind.HELLO:
            sequence, step = ledger.resume(rank)
            return [(rank, self._reply(rank, request)._replace(sequence=sequence, step=step))]
        if rank not in self._requests or request.sequence >= self._requests[rank].sequence:
            self._requests[rank] = request
        if request.kind == Kind.PUSH:
            dropped = ledger.dropped
            if ledger.is_new(rank, request.sequence):
                self._finished[rank] = self._turns.finish(rank)
            update = ledger.receive(Push(rank, request.sequence, request.version, request.step))
            if ledger.dropped > dropped:
                record(_event("dropped", rank, request, version=ledger.version))
            if update is not None:
                self._apply(update, record)
        else:
            ledger.pull(rank, request.sequence, request.step)
        self._note_stop(request.stop_signal or stop_signal)
        return self._replies(ledger.release())

    def lose(self, rank: int, record: Record) -> list[tuple[int, Reply]]:
        """Go on without a worker: another one gets its turn; the replies to send now."""
        self.ledger.lose(rank)
        turn = self._turns.lose(rank)
        self._without_turn.discard(rank)
        self._rows[rank] = [0.0] * ROW
        loss = Loss(rank, self.ledger.version, -1 if turn is None else turn.step)
        self.losses.append(loss)
        record({"event": "lost", **loss._asdict(), "time_ns": time.time_ns()})
        return self._replies([])

    def _replies(self, released: Sequence[int]) -> list[tuple[int, Reply]]:
        """The replies to workers that may go on: at once or, where they take turns, with a turn or when all meet."""
        takers = {rank for rank in released if self._rules.gives_turns and self._requests[rank].end}
        self._without_turn |= takers
        replies = [(rank, self._reply(rank, self._requests[rank])) for rank in released if rank not in takers]
        for rank in sorted(self._without_turn):
            request = self._requests[rank]
            turn = self._turns.take(rank, request.sequence, request.first, request.end)
            if turn is not None or self._all_meet(request):
                replies.append((rank, self._reply(rank, request, turn)))
        self._without_turn.difference_update(rank for rank, _ in replies)
        return replies

    def _all_meet(self, request: Request) -> bool:
        """Whether this worker meets the others now: all have asked for a turn, and every turn is finished.

        Then all get the same answer, in which no worker is lost that was not lost for another one.
        """
        segment = request.first, request.end
        living = set(range(self._rules.workers)) - self.ledger.lost
        if self._met != segment and self._without_turn >= living and self._turns.is_over(*segment):
            self._met = segment
            self.ledger.meet(self._turns.end_of(*segment))
        return self._met == segment

    def _note_stop(self, stop_signal: int) -> None:
        """On the first stop signal, choose the step after which all workers stop: none has begun a later one."""
        if stop_signal and not self._stop_signal:
            self._stop_signal, self._stop_at = stop_signal, self.ledger.furthest + 1
            self._turns.stop()

    def _apply(self, update: VersionedUpdate, record: Record) -> None:
        requests = [self._requests[push.rank] for push in update.pushes]
        for push, request in zip(update.pushes, requests, strict=True):
            self._rows[push.rank] = [request.loss, request.part, request.square, 0.0]
        ranks = [push.rank for push in update.pushes]
        rows = [self._rows[rank] for rank in ranks] if self._rules.needed else self._rows
        verdict = self._guard.decide(rows, self._like)
        parts = sum(request.part for request in requests)
        self._loss = verdict.loss.item()
        if len(ranks) < self._rules.needed + self._rules.config.backup and parts:
            self._loss /= parts  # the samples of the workers that were dropped are missing
        if not verdict.may_update:
            self._rows = [[0.0] * ROW for _ in self._rows]  # a bad push counts once
            self.ledger.skipped += 1
        if verdict.may_update and self._rules.needed:
            self._gathered(ranks, parts, requests[0].lr)
        elif verdict.may_update:
            self._at_once(update, requests[0])
        for push, request in zip(update.pushes, requests, strict=True):
            staleness = update.staleness(push)
            self._staleness_sum += staleness
            self._staleness_max = max(self._staleness_max, staleness)
            self._pushes += 1
            turn = self._finished.get(push.rank)
            more = {} if turn is None else {"share": turn.share}
            more |= {} if verdict.may_update else {"skipped": True}
            record(_event("update", push.rank, request, version=update.version, staleness=staleness) | more)

    def _gathered(self, ranks: Sequence[int], parts: float, lr: float) -> None:
        shard, robust = self._shard, self._rules.robust
        if robust is None:
            shard.sum_rows(ranks)
        else:
            for rows, out in zip(shard.rows_of(ranks), shard.gradients, strict=True):
                torch.mul(robust.rule(torch.stack(rows), robust.bad), len(rows), out=out)
        if len(ranks) < self._rules.workers and parts:
            for gradients in shard.gradients:
                gradients.div_(parts)
        shard.update(lr)

    def _at_once(self, update: VersionedUpdate, request: Request) -> None:
        shard, config = self._shard, self._rules.config
        (push,) = update.pushes
        for row, gradients in zip(shard.row(push.rank), shard.gradients, strict=True):
            gradients.copy_(row)
        if config.compensation and request.part:
            compensate(
                shard.gradients, shard.weights, self._sent[push.rank], config.compensation / request.part
            )
        shard.update.without_clipping(damped(request.lr, update.staleness(push), config))

    def _reply(self, rank: int, request: Request, turn: Turn | None = None) -> Reply:
        """The answer to a request; the worker has these weights from now on."""
        if self._rules.config.compensation:
            self._sent[rank] = [weights.clone() for weights in self._shard.weights]
        # After a push, the worker has finished one step more than before it.
        finished = request.step + (request.kind == Kind.PUSH)
        step = self.ledger.version if self._rules.needed else 0
        # A worker that is behind skips to `step`, and asks no more before it is there: it must learn now that it ends.
        stops = self._stop_at is not None and max(finished, step) >= self._stop_at and not request.end
        return Reply(
            request.sequence,
            self.ledger.version,
            step=step,
            loss=self._loss,
            stop_signal=self._stop_signal if stops or (request.end and turn is None) else 0,
            turn_step=-1 if turn is None else turn.step,
            turn_share=-1 if turn is None else turn.share,
            end=self._turns.end_of(request.first, request.end),
            staleness_sum=self._staleness_sum,
            staleness_max=self._staleness_max,
            pushes=self._pushes,
            dropped=self.ledger.dropped,
            skipped=self.ledger.skipped,
            losses=len(self.losses),
        )


def _event(event: str, rank: int, request: Request, **values: int) -> dict[str, Any]:
    """The record of a push in the run's events."""
    return {
        "event": event,
        "rank": rank,
        "sequence": request.sequence,
        "step": request.step,
        "from_version": request.version,
        **values,
    }


@torch.no_grad()
def compensate(
    gradients: Sequence[Tensor], weights: Sequence[Tensor], seen: Sequence[Tensor], strength: float
) -> None:
    """g ← g + strength·g⊙g⊙(θ − θ′), where θ′ are the weights of which these are the gradients."""
    for gradient, now, before in zip(gradients, weights, seen, strict=True):
        gradient.addcmul_(gradient.square(), now - before, value=strength)


def damped(lr: float, staleness: int, config: ServerConfig) -> float:
    """The learning rate of an update, divided by 1 + its staleness if the settings say so."""
    return lr / (1 + staleness) if config.damping else lr
