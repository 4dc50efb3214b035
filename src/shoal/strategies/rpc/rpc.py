"""`rpc`: model parallelism by layers over torch's RPC framework, as the course's lab has it.

::

    worker0  drives: data, loss                       remote ──▶ worker1  convolutions
                                                                    │ outputs, fetched by worker2
             ◀─────────────── outputs ───────────── worker2  fully connected layers

With two workers, worker0 holds the first stage as well; with more than three, there are more stages.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

import torch
from torch import Tensor
from torch.distributed import autograd

from shoal.comm.agree import share_text
from shoal.comm.alone import alone
from shoal.comm.blocking import BlockingThread
from shoal.comm.group import BUSY_S
from shoal.comm.liveness.limits import LOOK_EVERY_S
from shoal.comm.rendezvous.store import connect, listen, serve
from shoal.data.dataset import Batch
from shoal.errors import MemberError, ShoalError
from shoal.strategies.gradient_engine import sums_of
from shoal.strategies.guard import ROW
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pipeline.cut import cut_for_rpc, stage_ranks
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.rpc import torch_rpc
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.rpc.stage import RpcStage, stage_here
from shoal.strategies.strategy import Pause, Serving, Share, StepResult, Strategy, Sums

CONNECT_S = 60.0
NAMED_WITHIN_S = 3.0
"""How long to look for the worker that broke a call."""

Made = TypeVar("Made")


@final
class Rpc(Strategy):
    """One step, on the driver; all stages answer.

    Phase 1, forward: the batch in micro-batches; each goes through all stages, from worker to worker.
    Phase 2, loss: on the driver, of each micro-batch as it arrives.
    Phase 3, backward: distributed autograd follows the calls back through all stages.
    Phase 4, guard: each stage measures its gradients; the driver decides.
    Phase 5, update: the distributed optimizer steps on every stage, each with its own parameters.

    With one micro-batch, one stage computes at a time: the step takes the sum of all stages. With m micro-batches and
    s stages of equal time, it takes (m + s − 1) / (m · s) of that, because stages overlap.

    Costs, with X bytes of inputs, and Aᵢ of the outputs of stage i: X and 2·ΣAᵢ over the network in each step, and no
    parameter ever. The state is divided among the workers; each saves its own.

    Differs from one machine with batch norm and several micro-batches: each is normalised by its own statistics.
    """

    data_rank = 0
    data_size = 1

    def __init__(self, parts: SyncParts, config: RpcConfig) -> None:
        assert isinstance(parts.layout, Whole)  # STRATEGIES has no other pair
        whole, group = parts.layout, parts.group
        self.copies = alone()  # the driver alone evaluates
        self.serves = group.rank > 0
        self._group, self._guard = group, parts.guard
        self._span, self._loss = whole.span, whole.loss
        self._measures = whole.measures
        self._num_microbatches = config.microbatches
        ranks = stage_ranks(group.size)
        stages = cut_for_rpc(whole.model, config.cut, group.size)
        sync_initial_state(group, whole.pieces())
        self._layers = dict(zip(ranks, stages, strict=True))
        self._stage: RpcStage | None = None
        if group.rank in ranks:
            self._stage = RpcStage(whole.model, self._layers[group.rank], parts.update, whole.span, group)
            torch_rpc.publish(self._stage)
        self._thread = BlockingThread("shoal calls other workers")
        self._where = "the connection over RPC"
        self._num_computing = 0
        """Computations of the driver's own that are under way."""
        self._connect(max(config.microbatches, 1))
        self._num_steps, self._step_name = 0, ""
        if not self.serves:
            self._stages: list[Any] = self._watched(lambda: [torch_rpc.reference_to(rank) for rank in ranks])
            self._optimizer = self._watched(self._make_optimizer, BUSY_S)

    def _connect(self, num_calls: int) -> None:
        group = self._group
        group.beat(BUSY_S)  # starting a store and an agent takes seconds on a busy machine
        store = text = None
        if group.rank == 0:
            server = listen(group.address, 0)
            text = f"{group.address} {server.getsockname()[1]}"
            store = serve(server, CONNECT_S)
        host, port = share_text(group, text or "").split()
        store = store or connect(host, int(port), group.rank, CONNECT_S)
        self._watched(
            lambda: torch_rpc.connect(store, group.rank, group.size, group.address, num_calls), BUSY_S
        )
        group.barrier().wait()
        torch_rpc.close_doors()

    def _make_optimizer(self) -> Any:
        params = [param for stage in self._stages for param in stage.rpc_sync().parameters()]
        return torch_rpc.distributed_optimizer(stage_here, params)

    # The driver.

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch."""
        batch = joined(share.parts)
        self._step_name = _nth_step(self._num_steps)
        self._num_steps += 1
        return self._watched(lambda: self._step(batch, share, lr))

    def _step(self, batch: Batch, share: Share, lr: float) -> StepResult:
        span = self._span
        with autograd.context() as context:
            with self._waiting("forward"):
                inputs = batch.inputs.chunk(self._num_microbatches)
                futures = [self._forward(each, training=True) for each in inputs]
                outputs: list[Tensor] = []
                for number, future in enumerate(futures):
                    self._where = f"the outputs of micro-batch {number}, {self._step_name}"
                    outputs.append(future.wait())
            with span("loss", "compute"), self._computing():
                labelled = batch.parts([len(each) for each in inputs])
                losses = [self._loss(each, its.labels) for each, its in zip(outputs, labelled, strict=True)]
                scale = 1.0 / share.num_samples_global
                loss = torch.stack([each.detach() for each in losses]).sum() * scale
            self._where = f"the backward pass of {self._step_name}"
            with self._waiting("backward"), self._computing(outputs):
                autograd.backward(context, [each * scale for each in losses])
            self._where = f"the update of {self._step_name}"
            with self._waiting("update"):
                stop_signal, may_update = self._agree(context, loss, share, lr)
                if may_update:
                    self._optimizer.step(context)
                else:
                    _wait_all([stage.rpc_async().skip() for stage in self._stages])
        sent_bytes = sum(each.nbytes for each in outputs) + (0 if self._stage else batch.inputs.nbytes)
        self._group.note_transfer("rpc", sent_bytes)
        return StepResult(loss, stop_signal)

    @contextmanager
    def _computing(self, until_gradients_of: Sequence[Tensor] = ()) -> Generator[None]:
        """Around computation of the driver's own, which may not end: a loss, or its backward pass, down to the outputs.

        Meanwhile it does not wait for other workers.
        """
        self._num_computing = max(1, len(until_gradients_of))

        def count(gradient: Tensor) -> None:
            self._num_computing -= 1

        for outputs in until_gradients_of:
            outputs.register_hook(count)
        try:
            yield
        finally:
            self._num_computing = 0

    def _forward(self, inputs: Tensor, training: bool) -> Any:
        """Start a micro-batch on its way through all stages; the future of its outputs.

        What passes between stages is a reference: the next stage fetches the outputs from the worker that has them.
        A stage of the driver's own computes here and now. (Called like the others, it sometimes never answered the
        worker that fetched its outputs.)
        """
        value: Any = inputs if self._stage is None else self._stage.forward(inputs, training)
        remote = self._stages if self._stage is None else self._stages[1:]
        for stage in remote[:-1]:
            value = stage.remote().forward(value, training)
        return remote[-1].rpc_async().forward(value, training)

    def _agree(self, context: int, loss: Tensor, share: Share, lr: float) -> tuple[int, bool]:
        """The stop signal of any worker, and whether all gradients are finite; the guard raises if it must."""
        step = StepResult(loss), share.num_samples_global, lr
        answers = _wait_all([stage.rpc_async().gradient_square(context, step) for stage in self._stages])
        table = torch.zeros(self._group.size, ROW, dtype=torch.float64)
        table[0, :2] = torch.tensor([loss.item(), 1.0])
        table[0, 3] = share.stop_signal
        squares = torch.tensor([square for square, _ in answers], dtype=torch.float64)
        for rank, (_, stop_signal) in zip(self._layers, answers, strict=True):
            table[rank, 3] = max(table[rank, 3].item(), stop_signal)
        # Layers differ in the norms of their gradients. If all are finite, each worker counts with the norm of all.
        finite = squares.isfinite().all()
        table[:, 2] = squares.sum() if finite else 0.0
        if not finite:
            table[list(self._layers), 2] = squares
        verdict = self._guard.decide(table.tolist(), loss)
        return verdict.stop_signal, verdict.may_update

    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch; only the driver calls it."""
        self._where = "an evaluation"

        def outputs() -> Tensor:
            return self._forward(batch.inputs, training=False).wait()

        with torch.no_grad():
            return sums_of(self._watched(outputs), self._loss, batch, self._measures)

    def pause(self, pause: Pause) -> None:
        """Make the other workers save."""
        others = [stage for rank, stage in zip(self._layers, self._stages, strict=True) if rank > 0]
        self._where = "a checkpoint"
        self._watched(lambda: _wait_all([stage.rpc_async().pause(pause) for stage in others]))

    # The other workers.

    def serve(self, serving: Serving) -> Pause:
        """Answer calls until the driver pauses. The calls run on threads of the RPC agent; this one watches."""
        stage = self._stage
        assert stage is not None
        stage.serving = serving
        idle_since = time.monotonic()
        while (event := stage.next_event(LOOK_EVERY_S)) is None:
            if stage.is_computing:
                idle_since = time.monotonic()
            else:
                self._group.beat()
            self._check_members(f"the end of {_nth_step(stage.num_steps)}", idle_since)
        self._group.beat()
        return event

    # All workers.

    def pieces(self) -> list[Piece]:
        """The state of this worker's stage; a driver without one holds nothing."""
        return self._stage.pieces() if self._stage else []

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the state of this worker's stage."""
        if self._stage:
            self._stage.load(saved)
        # The driver may call a stage at once: not before that has loaded its part.
        self._group.barrier().wait()

    def close(self) -> None:
        """End the agents, together."""
        self._where = "the end of all calls"
        self._watched(torch_rpc.shutdown)
        self._group.barrier().wait()
        self._thread.close()

    def _watched(self, work: Callable[[], Made], busy_s: float = 0.0) -> Made:
        """What `work` returns. It blocks in torch, so it runs on a thread, while this one looks for missing workers."""
        made: list[Made] = []
        self._group.beat(busy_s)
        started = time.monotonic()
        call = self._thread.add(lambda: made.append(work()))
        while not call.finished.wait(LOOK_EVERY_S):
            self._check_members(self._where, started)
        if call.error is not None:
            raise self._named(call.error)
        return made[0]

    def _named(self, error: Exception) -> Exception:
        """The error of a call: ours as it is; for another, the worker that failed or died, if that shows soon."""
        if isinstance(error, ShoalError):
            return error
        if self._stage is not None:
            self._stage.next_event(0.0)  # raises the error of this worker's own stage
        deadline = time.monotonic() + NAMED_WITHIN_S
        while time.monotonic() < deadline:
            try:
                self._check_members(self._where, time.monotonic())
            except MemberError as found:
                return found
            time.sleep(LOOK_EVERY_S / 2)
        return torch_rpc.call_error(error, self._where)

    def _check_members(self, label: str, since: float) -> None:
        """Raise when a worker will not come; this one has waited for `label` since then, unless it computes itself."""
        computes = self._num_computing > 0 or (self._stage is not None and self._stage.is_computing)
        waited_s = 0.0 if computes else time.monotonic() - since
        try:
            self._group.check_members(label, waited_s)
        except MemberError as error:
            layers = self._layers.get(error.rank)
            if layers is None:
                raise
            held = f"it held {layers[0].name} to {layers[-1].name}"
            raise MemberError(
                f"{error.message}; {held}", error.hint, rank=error.rank, reason=error.reason
            ) from None

    def _waiting(self, name: str) -> Any:
        """A span of the driver; one that holds a stage computes meanwhile."""
        return self._span(name, "wait" if self._stage is None else "idle")


def joined(parts: Any) -> Batch:
    """All parts of a share as one batch: micro-batches are this strategy's own."""
    batches: Sequence[Batch] = list(parts)
    return Batch.joined(batches)


def _nth_step(number: int) -> str:
    """A step in words; in a resumed run, other steps came before."""
    return f"step {number} since the start"


def _wait_all(futures: Sequence[Any]) -> list[Any]:
    return [future.wait() for future in futures]
