"""The worker of a parameter server: pulls weights, computes the gradients of its share, pushes them."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from shoal.comm.group import Group
from shoal.strategies.buckets.buffer_sync import buffer_sync_of
from shoal.strategies.buckets.unused import refuse_unused
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import Exchange, pieces_under
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.server.mapped import MappedClient
from shoal.strategies.server.messages import Reply, Request, RequestKind, ServerClient
from shoal.strategies.server.push_codec import PushEncoder, PushFormat
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.survivors import Survivors
from shoal.strategies.server.updates import clip_alone
from shoal.strategies.strategy import EndOfTurns, Pause, Share, StepResult, Turn, agreed_loss, part_of


@final
class ServerWorker(Sync):
    """Phase 1, gradients of this worker's share. Phase 2, push them. Phase 3, wait for new weights.

    One round trip per step: the reply to a push acknowledges it, and brings the weights for the next step. When it
    comes is the server's decision, and the only difference between the modes::

        bsp     after the update with the gradients of all workers: every step is one machine's
        ssp     after this worker's own update, when no worker is more than `staleness` steps behind
        asp     after this worker's own update, at once; with it comes the next share that is free (a turn)

    Costs, with P bytes of parameters: P out and P in, divided among the servers, and a header of about 100 bytes to and
    from each of them. Memory: gradients and weights once more, as flat buffers. A worker that `updates_in_place` sends
    nothing, and has no second copy of its gradients.
    """

    def __init__(
        self, parts: SyncParts, config: ServerConfig, world: Group, updates_in_place: bool = False
    ) -> None:
        """`parts.group` has all workers that train, `world` these and, after them, the servers.

        If it `updates_in_place`, this worker does the server's part of phase 2 and 3, in memory that both map.
        """
        super().__init__(parts)
        self._config, self._world, self._training = config, world, parts.training_clock
        layout = parts.layout
        sync_initial_state(world, layout.pieces())
        self._client: ServerClient | MappedClient
        self._encoder: PushEncoder | None = None
        if updates_in_place:
            self._client = MappedClient(parts, config, world)
        else:
            self._client = client = ServerClient(world, world.size - parts.group.size, layout.params)
            client.encoder = self._encoder = self._encoder_of(parts.exchange, client)
        self._buffers = buffer_sync_of(parts.group, layout.model)
        self.takes_turns, self._gathers = config.takes_turns, config.gathers
        self._survivors = (
            Survivors(world, parts.group.size, parts.group) if config.on_lost == "continue" else None
        )
        self._finished = 0
        self._was_loaded = False
        self._turn: Turn | EndOfTurns | None = None
        self._segment = 0, 0
        self._samples = [0, 0]
        """Samples of this worker's shares, and of all shares of the same steps."""

    def _encoder_of(self, exchange: Exchange, client: ServerClient) -> PushEncoder | None:
        if not isinstance(exchange, Compressed):
            return None
        servers, buckets = len(client.servers), client.flat.buckets
        formats = [PushFormat(exchange.config, buckets, server, servers) for server in range(servers)]
        for remark in sorted(set[str]().union(*(each.remarks for each in formats))):
            if self._group.rank == 0:
                warnings.warn(remark, stacklevel=4)
        return PushEncoder(formats, self.data_rank, self.data_size, self._training.span)

    # Steps.

    def step(self, share: Share, lr: float) -> StepResult:
        """Compute and push the gradients of a share; returns with the weights for the next step."""
        if self._was_loaded:
            self._go_on()
        layout = self._layout
        if self._gathers and self._finished < min((reply.step for reply in self._client.replies), default=0):
            # The others have finished this step: its gradients would be dropped.
            self._finished += 1
            return self._result(layout.zero, share)
        loss = layout.gradients(share)
        with layout.span("push", "move"):
            row = self._measured(loss, share)
            first, end = self._segment
            step = self._turn.step if isinstance(self._turn, Turn) else self._finished
            request = Request(
                RequestKind.PUSH,
                step=step,
                first=first,
                end=end,
                lr=lr,
                loss=row[0],
                part=row[1],
                square=row[2],
                stop_signal=share.stop_signal,
                training_step=self._training.step,
            )
            reply = self._client.ask(request, gradients=True)
        self._finished += 1
        self._turn = reply.turn if self.takes_turns else None
        self._samples[0] += share.num_samples
        self._samples[1] += share.num_samples_global
        return self._result(loss, share)

    def _measured(self, loss: Tensor, share: Share) -> Sequence[float]:
        """This worker's row of the guard's table; clips the gradients that are pushed if each push is an update.

        Gathered gradients are clipped by the servers, by the norm of their sum.
        """
        missing = self._client.take_gradients()
        if missing and share.num_samples and self._config.unused == "refuse":
            refuse_unused(self._world, missing, len(self._layout.params))
        gradients = self._client.gradients
        self._guard.look(*gradients)
        row = [*map(float, self._guard.row(loss, share))]
        if not self._gathers:
            clip_alone(gradients, row, self._update.clip_norm)
        return row

    def _result(self, loss: Tensor, share: Share) -> StepResult:
        """The loss of all workers where gradients are gathered; else the mean loss of this worker's samples."""
        reply = self._client.replies[0]
        # A worker that lags skips ahead to the others' step and stops there.
        stop_signal = reply.stop_signal if self._finished >= reply.step else 0
        if self._gathers:
            return StepResult(loss.new_full((), reply.loss), stop_signal)
        own = loss * (share.num_samples_global / max(1, share.num_samples))
        return StepResult(own, stop_signal)

    def next_turn(self, first: int, end: int) -> Turn | EndOfTurns:
        """The next share of steps `first` to `end` − 1 that is free. It came with the weights."""
        if self._was_loaded:
            self._go_on()
        if self._turn is None or self._segment != (first, end):
            self._segment = first, end
            self._turn = self._client.ask(Request(RequestKind.PULL, first=first, end=end)).turn
        if self._survivors is not None and isinstance(self._turn, EndOfTurns):
            self._survivors.meet(self._client.replies[0].losses)
        return self._turn

    # One model.

    def consolidate(self) -> None:
        """When all workers have pushed everything, read the newest weights; all take rank 0's buffers."""
        self._group.barrier().wait()
        if not self._gathers or self._config.backup:
            self._client.ask(Request(RequestKind.READ))
        if self._buffers is not None:
            self._buffers.update()
        self._turn = None

    def agree_on_loss(self, loss_sum: float) -> float:
        """The mean of the workers' sums, weighted by their numbers of samples, if each has its own."""
        if self._gathers or self.takes_turns:
            return loss_sum
        return agreed_loss(self._group, loss_sum, part_of(self._samples, self._group.size))

    def pause(self, pause: Pause) -> None:
        """Make the servers save as well, once no worker has a request under way."""
        self._group.barrier().wait()
        self._client.pause(json.dumps(pause._asdict()))

    def pieces(self) -> list[Piece]:
        """The model, and the state of this worker's codecs; the servers hold the optimizer's state."""
        own = self._encoder.pieces() if self._encoder is not None else {}
        return [
            *self._layout.pieces(),
            *(Piece.whole(f"exchange.rank{self.data_rank}.{name}", tensor) for name, tensor in own.items()),
        ]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the model, and the state of the codecs."""
        self._layout.load(saved)
        if self._encoder is not None:
            self._encoder.load(pieces_under(f"exchange.rank{self.data_rank}.", saved))
        # A worker may push at once: not before the servers have loaded their parts.
        self._world.barrier().wait()
        self._was_loaded = True

    def _go_on(self) -> None:
        """After loading, go on with the sequence numbers and steps that the servers have loaded."""
        self._was_loaded = False
        self._finished = self._client.ask(Request(RequestKind.HELLO)).step

    def summary(self) -> dict[str, Any]:
        """The run's result about updates and staleness, from the first server's counts."""
        reply = self._client.replies[0] if self._client.replies else Reply(0, 0)
        losses = () if self._survivors is None else self._survivors.losses
        exchange = self._exchange
        sums = exchange.config.is_neutral if isinstance(exchange, Compressed) else exchange.is_sum
        return {
            "mode": self._config.mode,
            "gathers": self._gathers,
            "repeats": self._config.repeats,
            "exact": self._config.repeats and sums,  # the sum of the workers' gradients, up to rounding
            "servers": len(self._client.servers),
            "updates": reply.version - reply.skipped,
            "staleness_mean": round(reply.staleness_sum / reply.pushes, 4) if reply.pushes else 0.0,
            "staleness_max": reply.staleness_max,
            "dropped": reply.dropped,
            "skipped": reply.skipped,
            "lost": [{"rank": loss.rank, "updates": loss.version} for loss in losses],
        }
