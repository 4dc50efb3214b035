"""`local`: workers train alone for some steps, then average their weights (local SGD, DiLoCo, streaming DiLoCo)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.unused import refuse_unused
from shoal.strategies.exchange.build import compressed_in
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.guard import ROW, GuardVerdict
from shoal.strategies.local.averagings import Averaging, Averagings, FragmentStates
from shoal.strategies.local.fragment import Moments
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.memory import ANCHORS, IN_FLIGHT, Component, Sizes, whole_copy
from shoal.strategies.pieces.piece import Piece, by_name
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, StepResult, agreed_loss, part_of


@final
class LocalSync(Sync):
    """Phase 1, a step of this worker alone. Phase 2, averages that are due now are applied. Phase 3, others begin.

    With nᵢ samples of worker i and N of all workers in a step, ḡᵢ the mean gradient over i's samples, and `update` the
    optimizer's step, between two averagings::

        θᵢ ← update(θᵢ, ḡᵢ)                       each worker alone, k times (`every`)
        wᵢ = Σ nᵢ / Σ N                           its part of the samples of these k steps
        Δ  = Σ wᵢ·(θ − θᵢ)                        one exchange
        u  ← μ·u + Δ                              the outer step (`outer_lr` η, `outer_momentum` μ)
        θ  ← θ − η·(Δ + μ·u)
        θᵢ ← θ

    With η = 1 and μ = 0 this is local SGD: θ ← Σ wᵢ·θᵢ. DiLoCo has η = 0.7, μ = 0.9. For k = 1 and SGD::

        Σ wᵢ·(θ − lr·ḡᵢ) = θ − lr·Σ (nᵢ/N)·ḡᵢ = θ − lr·g        because the wᵢ add up to 1

    which is one machine's update, for shares of any size. Momentum and weight decay are linear, too, so it holds for
    them if the moments are averaged with the same wᵢ. Adam's update and clipping are not linear: they differ.

    *Streaming* (`fragments`): parts of the weights are averaged at different steps, so that no step sends all of them.
    *Overlap*: averages are applied `overlap` steps after they began; what a worker has learnt meanwhile is added. Which
    step applies an average depends on the number of steps alone, never on when it arrives: runs repeat.

    *Compressed* (`--exchange compressed:int8`): what is encoded is wᵢ·(θ − θᵢ). What a codec drops is added to the next
    difference (error feedback; Basu et al. 2019, Qsparse-local-SGD). Moments, buffers and the model that is evaluated
    are averaged as they are.

    *Agreement.* Steps without an averaging do not communicate. Stop signals and bad numbers travel with the next
    averaging (of the first fragment): workers stop after the same step, and a gradient that is not finite counts as
    zero. The loss of a step is this worker's own, unless such an averaging begins and ends in it.

    *One model.* To evaluate, save and export, the workers average all weights, moments and buffers, and return to their
    own in the next step (`consolidate`). A checkpoint has that model and each worker's own state.

    Costs one exchange of the weights (and moments) every `every` steps, and nothing else where the exchange is a sum.
    Memory: four times the weights; in a checkpoint, once more weights and moments.
    """

    def __init__(self, parts: SyncParts, config: LocalConfig) -> None:
        super().__init__(parts)
        self._config = config
        params = parts.layout.params
        sync_initial_state(parts.group, super().pieces())
        for param in params.values():
            param.data = param.data.contiguous()
        # Moments, buffers and the model that is evaluated are averaged as they are.
        encoders = compressed_in(parts.exchange)
        for encoder in encoders:
            encoder.encode_only(params)
        exact = AllReduce() if encoders else None
        self._averagings = Averagings(params, config, parts.group, parts.exchange, exact)
        self._kept: _OwnState | None = None
        """This worker's own state, while the model is the average of all workers'."""
        self._last_loss = parts.layout.zero
        self._received_signal = self._agreed_signal = 0
        """The stop signal that this worker has received, and the signal that all workers know of."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update of this worker alone; then the averagings that end or begin with it."""
        if self._kept is not None:
            self._kept.restore(self._own_pieces())
            self._kept = None
        self._received_signal = share.stop_signal
        self._group.beat()  # it may not communicate for many steps
        self._averagings.advance()
        loss = self._step_alone(share, lr)
        self._averagings.count(share)
        if self._averagings.under_way or self._averagings.due:
            with self._layout.span("exchange", "move"):
                self._averagings.advance()
                self._apply_averages()
                if self._averagings.due:
                    self._begin_averaging(loss, share)
                agreed = self._apply_averages()
                loss = loss if agreed is None else agreed
        return StepResult(loss, self._agreed_signal)

    def _step_alone(self, share: Share, lr: float) -> Tensor:
        """A step by the mean gradient of this worker's samples; returns their mean loss.

        Numbers that are not finite do not reach the weights: the gradient counts as zero, and the loss as the last one.
        """
        loss = self._layout.gradients(replace(share, num_samples_global=max(1, share.num_samples)))
        self._fill_in_gradients(has_samples=share.num_samples > 0)
        grads = [param.grad for param in self._layout.params.values() if param.grad is not None]
        norms = torch._foreach_norm(grads)  # pyright: ignore[reportPrivateUsage]
        # The last number is 0, unless the loss is not finite: then it counts as such a gradient.
        measured = torch.stack([*(norm.to(loss.dtype) for norm in norms), loss - loss])
        self._guard.look(measured)
        if not math.isfinite(measured.dot(measured).item()):
            for grad in grads:
                grad.zero_()
            loss = self._last_loss
        self._last_loss = loss
        self._update(lr)
        return loss

    def _fill_in_gradients(self, has_samples: bool) -> None:
        """Use zero where no sample reached a parameter: workers must have the same moments to average."""
        params = self._layout.params
        missing = [name for name, param in params.items() if param.grad is None]
        if missing and has_samples and self._config.unused == "refuse":
            refuse_unused(self._group, missing, len(params))
        for name in missing:
            params[name].grad = torch.zeros_like(params[name])

    def _begin_averaging(self, loss: Tensor, share: Share) -> None:
        """Begin to average what is due. The guard's table, with this step's losses, goes with the first fragment."""
        table = None
        if self._averagings.fragments[0] in self._averagings.due:
            table = loss.new_empty((self._group.size, ROW))
            self._guard.write(table, loss * (share.num_samples / share.num_samples_global), share)
        self._averagings.begin(self._moments() if self._config.averages_moments else {}, table)

    def _apply_averages(self) -> Tensor | None:
        """Apply the averages that are to be applied now; the loss of all workers if one of them is of this step."""
        loss = None
        for averaging in self._averagings.to_apply():
            verdict = self._read_table(averaging)
            if verdict is not None and averaging.step == self._averagings.step:
                loss = verdict.loss
            self._averagings.apply(averaging)
        return loss

    def _read_table(self, averaging: Averaging) -> GuardVerdict | None:
        """Read the table that came with an averaging, once; an error names workers with bad numbers."""
        table, averaging.table = averaging.table, None
        if table is None:
            return None
        verdict = self._guard.decide(table.tolist(), self._last_loss)
        self._agreed_signal = self._agreed_signal or verdict.stop_signal
        return verdict

    def _moments(self) -> Moments:
        """The optimizer's state for each parameter, where it has a number for each element."""
        found: dict[str, dict[str, Tensor]] = {}
        for piece in self._update.pieces():
            name, _, key = piece.name.removeprefix("optim.").rpartition(".")
            is_moment = (
                piece.tensor.dtype.to_real().is_floating_point
                and piece.tensor.shape == self._layout.params[name].shape
            )
            # Not the count of steps, which has the shape of a parameter that is a single number.
            if is_moment and key != "step":
                found.setdefault(name, {})[key] = piece.tensor
        return found

    # One model.

    def consolidate(self) -> None:
        """Average all weights, moments and buffers over the workers; the next step returns to this worker's own."""
        if self._kept is not None:
            return
        averagings, moments = self._averagings, self._moments()
        for averaging in averagings.under_way:
            averaging.wait()
            self._read_table(averaging)
        self._kept = _OwnState(self._own_pieces(), averagings)
        # Error feedback belongs to training, and this is none.
        exchange_state = {name: tensor.clone() for name, tensor in self._exchange.pieces().items()}
        for averaging in averagings.under_way:
            averagings.apply(averaging)
        averagings.become_mean(moments if self._config.averages_moments else {})
        self._average_what_workers_keep({} if self._config.averages_moments else moments)
        self._exchange.load(exchange_state)
        since = self._guard.agree(self._layout.zero, Share((), 1, 0, self._received_signal))
        self._agreed_signal = self._agreed_signal or since.stop_signal

    @torch.no_grad()
    def _average_what_workers_keep(self, moments: Moments) -> None:
        """Average buffers and these moments, which the averagings of weights do not include."""
        kept = dict(self._layout.model.named_buffers())
        kept |= {f"{name}.{key}": tensor for name in moments for key, tensor in moments[name].items()}
        for name, tensor in kept.items():
            if tensor.dtype.to_real().is_floating_point:
                part = tensor.contiguous() * self._part
                self._exchange(self._group, Bucket.of(name, part)).wait()
                tensor.copy_(part)

    @property
    def _part(self) -> float:
        """This worker's part of all samples so far."""
        return part_of(self._averagings.num_samples, self._group.size)

    def agree_on_loss(self, loss_sum: float) -> float:
        """The mean of the workers' sums, weighted by their numbers of samples."""
        return agreed_loss(self._group, loss_sum, self._part)

    # Checkpoints.

    def _own_pieces(self) -> list[Piece]:
        return [*self._layout.pieces(), *self._update.pieces()]

    def pieces(self) -> list[Piece]:
        """One machine's state, which after `consolidate` is the average, and under `local.` what exact resuming needs.

        `local.rank<i>.` is what worker i has to itself. The rest is the same on all workers, and rank 0 saves it.
        """
        rank, kept = self._group.rank, self._kept
        common, mine = self._averagings.pieces(kept.fragments if kept else {})
        mine |= kept.tensors if kept else by_name(self._own_pieces())
        return [
            *super().pieces(),
            *(Piece.whole(f"local.{name}", tensor, replica=rank) for name, tensor in common.items()),
            *(Piece.whole(f"local.rank{rank}.{name}", tensor) for name, tensor in mine.items()),
        ]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Continue exactly if a run of as many workers and with these settings was saved; else from its one model."""
        self._kept = None
        super().load(saved)
        if self._averagings.restart(_Under("local.", saved)):
            mine = _Under(f"local.rank{self._group.rank}.", saved)
            self._layout.load(mine)
            self._update.load(mine)
            self._averagings.load(_Under("local.", saved), mine)


@final
class _OwnState:
    """A copy of a worker's weights, moments and buffers, and of the fragments whose averages are not applied yet."""

    def __init__(self, pieces: list[Piece], averagings: Averagings) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in by_name(pieces).items()}
        self.fragments: FragmentStates = {
            fragment: {key: tensor.clone() for key, tensor in fragment.state(is_under_way=True).items()}
            for averaging in averagings.under_way
            for fragment in averaging.fragments
        }

    def restore(self, pieces: list[Piece]) -> None:
        """Copy everything back to where it was."""
        for name, tensor in by_name(pieces).items():
            tensor.copy_(self.tensors[name])
        for fragment, kept in self.fragments.items():
            for key, tensor in fragment.state(is_under_way=True).items():
                tensor.copy_(kept[key])


@final
class _Under(Mapping[str, Tensor]):
    """The saved tensors whose names begin with a prefix, without it; each is read when it is asked for."""

    def __init__(self, prefix: str, saved: Mapping[str, Tensor]) -> None:
        self._prefix, self._saved = prefix, saved

    def __getitem__(self, name: str) -> Tensor:
        return self._saved[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._saved if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def local_memory(sizes: Sizes) -> list[Component]:
    """Whole copies, and the weights between two averagings."""
    each = sizes.weights / max(1, sizes.num_params)
    state = sizes.state if sizes.averages_state else 0
    bucket = f"{each:.3g}Ψ" + (f" + {state / max(1, sizes.num_params):.3g}Ψ" if state else "")
    return [
        *whole_copy(sizes),
        # The weights after the last averaging and before the next, and the momentum of the outer step.
        Component(ANCHORS, f"{3 * each:.3g}Ψ", 3 * sizes.weights),
        Component(IN_FLIGHT, bucket, sizes.weights + state),
    ]


def averaging_every_step(config: LocalConfig) -> LocalConfig:
    """The peak is in a step with an averaging."""
    moments = "average" if config.averages_moments else "keep"
    return replace(config, every=1, overlap=0, fragments=1, moments=moments)
