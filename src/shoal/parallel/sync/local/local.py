"""`local`: workers train alone for some steps, then average their weights (local SGD, DiLoCo, streaming DiLoCo)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Work
from shoal.config.schema import LocalConfig
from shoal.parallel.buckets.bucket import Bucket
from shoal.parallel.buckets.unused import refuse_unused
from shoal.parallel.exchange.exchange import Done
from shoal.parallel.guard import ROW, GuardVerdict
from shoal.parallel.piece import Piece, by_name
from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.local.fragment import Fragment, cut
from shoal.parallel.sync.local.own_state import OwnState, by_parameter, load_by_parameter, state_of
from shoal.parallel.sync.sync import Sync, SyncParts

NEVER = -1
"""In a checkpoint, the step in which the averaging of a fragment began that is not under way."""


@dataclass
class Averaging:
    """Fragments whose averages are on their way, and the guard's table, which travels with them."""

    step: int
    """The step after which it began."""
    fragments: list[Fragment]
    table: Tensor | None = None
    """None if the workers have read it before, in an earlier process."""
    table_work: Work = field(default_factory=Done)

    def wait(self) -> None:
        """Wait until everything has arrived."""
        for fragment in self.fragments:
            fragment.wait()
        self.table_work.wait()
        self.table_work = Done()


@final
class LocalSync(Sync):
    """Phase 1, a step of this worker alone. Phase 2, averages that are due now are applied. Phase 3, others begin.

    With nᵢ samples of worker i and N of all workers in a step, ḡᵢ the mean gradient over i's samples, and `update` the
    optimizer's step, between two averagings::

        θᵢ ← update(θᵢ, ḡᵢ)                       each worker alone, k times (`every`)
        wᵢ = Σ nᵢ / Σ N                           its part of the samples of these k steps
        Δ  = Σ wᵢ·(θ − θᵢ)                        one exchange
        θ  ← θ − η·(Δ + μ·u),  u ← μ·u + Δ        the outer step (`outer_lr` η, `outer_momentum` μ)
        θᵢ ← θ

    With η = 1 and μ = 0 this is local SGD: θ ← Σ wᵢ·θᵢ. DiLoCo has η = 0.7, μ = 0.9. For k = 1 and SGD::

        Σ wᵢ·(θ − lr·ḡᵢ) = θ − lr·Σ (nᵢ/N)·ḡᵢ = θ − lr·g        because the wᵢ add up to 1

    which is one machine's update, for shares of any size. Momentum and weight decay are linear, too, so it holds for
    them if the moments are averaged with the same wᵢ. Adam's update and clipping are not linear: they differ.

    *Streaming* (`fragments`): parts of the weights are averaged at different steps, so that no step sends all of them.
    *Overlap*: averages are applied `overlap` steps after they began; what a worker has learnt meanwhile is added. Which
    step applies an average depends on the number of steps alone, never on when it arrives: runs repeat.

    *Agreement.* Steps without an averaging do not communicate. Stop signals and bad numbers are exchanged with the next
    averaging: workers stop after the same step, and a gradient that is not finite counts as zero until then. The loss
    of a step is this worker's own unless an averaging begins and ends in it.

    *One model.* To evaluate, save and export, the workers average all weights, moments and buffers, and return to their
    own in the next step (`consolidate`). A checkpoint has that model and each worker's own state.

    Costs one exchange of the weights (and moments) every `every` steps, and a small all-reduce. Memory: four times the
    weights; in a checkpoint, once more weights and moments.
    """

    def __init__(self, parts: SyncParts, config: LocalConfig) -> None:
        super().__init__(parts)
        self._config = config
        layout = parts.layout
        sync_initial_state(parts.group, super().pieces())
        for param in layout.params.values():
            if not param.is_contiguous():
                param.data = param.data.contiguous()
        ranges = cut(layout.params, config.fragments)
        self._fragments = [
            Fragment(layout.params, stretches, index * config.every // len(ranges))
            for index, stretches in enumerate(ranges)
        ]
        self._step = 0
        """Steps since training began or continued with another number of workers or other settings."""
        self._num_samples = [0, 0]
        """Samples of all these steps: this worker's, and all workers'."""
        self._under_way: list[Averaging] = []
        self._kept: OwnState | None = None
        """This worker's own state, while the model is the average of all workers'."""
        self._last_loss = layout.zero
        self._last_signal = 0
        """The stop signal that this worker has received."""
        self._stop_signal = 0
        """The stop signal that all workers know of."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update of this worker alone; then the averagings that begin or end with it."""
        self._return_to_own_state()
        self._last_signal = share.stop_signal
        self._group.beat()  # it may not communicate for many steps
        loss = self._step_alone(share, lr)
        self._step += 1
        for fragment in self._fragments:
            _count(fragment.num_samples, share)
        _count(self._num_samples, share)
        due = [each for each in self._fragments if (self._step + each.offset) % self._config.every == 0]
        if due or self._under_way:
            with self._layout.span("exchange", "move"):
                self._end_averagings(self._step - self._config.overlap)
                if due:
                    self._begin_averaging(due, loss, share)
                verdict = self._end_averagings(self._step - self._config.overlap)
                loss = loss if verdict is None else verdict.loss
        return StepResult(loss, self._stop_signal)

    def _step_alone(self, share: Share, lr: float) -> Tensor:
        """A step by the mean gradient of this worker's samples; returns their mean loss.

        Numbers that are not finite do not reach the weights: the gradient counts as zero, and the loss as the last one.
        """
        loss = self._layout.gradients(replace(share, num_samples_global=max(1, share.num_samples)))
        self._fill_in_gradients(has_samples=share.num_samples > 0)
        grads = [param.grad for param in self._layout.params.values() if param.grad is not None]
        norms = torch._foreach_norm(grads)  # pyright: ignore[reportPrivateUsage]
        # With the loss, so that a loss that is not finite counts as such a gradient.
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

    def _begin_averaging(self, due: list[Fragment], loss: Tensor, share: Share) -> None:
        moments = self._moments() if self._config.averages_moments else {}
        for fragment in due:
            fragment.start(self._group, self._exchange, moments)
            fragment.num_samples = [0, 0]
        table = loss.new_empty((self._group.size, ROW))
        part = share.num_samples / share.num_samples_global
        self._guard.write(table, loss * part, share)
        self._under_way.append(Averaging(self._step, due, table, self._group.all_reduce(table)))

    def _end_averagings(self, began: int) -> GuardVerdict | None:
        """Apply the averages that began in this step or before; the verdict of the one of the present step."""
        verdict = None
        while self._under_way and self._under_way[0].step <= began:
            averaging = self._under_way.pop(0)
            averaging.wait()
            if averaging.table is not None:
                found = self._heed(self._guard.read(averaging.table, self._last_loss))
                verdict = found if averaging.step == self._step else None
            self._apply(averaging)
        return verdict

    def _apply(self, averaging: Averaging) -> None:
        for fragment in averaging.fragments:
            fragment.outer_step(self._config.outer_lr, self._config.outer_momentum)

    def _heed(self, verdict: GuardVerdict) -> GuardVerdict:
        self._stop_signal = max(self._stop_signal, verdict.stop_signal)
        return verdict

    # One model.

    def consolidate(self) -> None:
        """Average all weights, moments and buffers over the workers; the next step returns to this worker's own."""
        if self._kept is not None:
            return
        with self._layout.span("exchange", "move"):
            for averaging in self._under_way:
                averaging.wait()
            self._kept = OwnState(self._own_pieces(), [f for each in self._under_way for f in each.fragments])
            exchange_state = {name: tensor.clone() for name, tensor in self._exchange.pieces().items()}
            for averaging in self._under_way:
                self._apply(averaging)
            moments = self._moments()
            for fragment in self._fragments:
                fragment.start(self._group, self._exchange, moments if self._config.averages_moments else {})
            for fragment in self._fragments:
                fragment.become_mean()
            self._average_what_workers_keep(moments)
            # Error feedback belongs to training, and this is none.
            self._exchange.load(exchange_state)
            no_samples = Share((), 1, 0, self._last_signal)
            self._heed(self._guard.agree(self._layout.zero, no_samples))

    def _average_what_workers_keep(self, moments: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Average what no averaging of a fragment includes: buffers, and moments that each worker keeps."""
        mine, all_samples = self._num_samples
        weight = mine / all_samples if all_samples else 1 / self._group.size
        kept = dict(self._layout.model.named_buffers())
        if not self._config.averages_moments:
            kept |= {f"{name}.{key}": each for name in moments for key, each in moments[name].items()}
        for name, tensor in kept.items():
            if tensor.is_floating_point():
                flat = tensor.detach().contiguous() * weight
                self._exchange(self._group, Bucket.of(name, flat)).wait()
                tensor.copy_(flat)

    def _return_to_own_state(self) -> None:
        if self._kept is not None:
            self._kept.restore(self._own_pieces())
            self._kept = None

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's state for each parameter, where it has a number for each element."""
        found: dict[str, dict[str, Tensor]] = {}
        for piece in self._update.pieces():
            name, _, key = piece.name.removeprefix("optim.").rpartition(".")
            is_moment = (
                piece.tensor.is_floating_point() and piece.place.shape == self._layout.params[name].shape
            )
            # The count of steps of a parameter that is one number has its shape, too.
            if is_moment and key != "step":
                found.setdefault(name, {})[key] = piece.tensor
        return found

    # Checkpoints.

    def _own_pieces(self) -> list[Piece]:
        return [*self._layout.pieces(), *self._update.pieces()]

    def pieces(self) -> list[Piece]:
        """One machine's state, which after `consolidate` is the average, and under `local.` what exact resuming needs.

        `local.rank<i>.` is what worker i has to itself. The rest is the same on all workers, and rank 0 saves it.
        """
        rank, params, kept = self._group.rank, self._layout.params, self._kept
        states = {fragment: self._state_of(fragment) for fragment in self._fragments}
        began = {fragment: each.step for each in self._under_way for fragment in each.fragments}

        def flats(key: str) -> dict[Fragment, Tensor]:
            return {fragment: state[key] for fragment, state in states.items() if key in state}

        mine = dict(kept.tensors) if kept else by_name(self._own_pieces())
        counts = [*(fragment.num_samples for fragment in self._fragments), self._num_samples]
        mine["num_samples"] = torch.tensor(counts)
        common = {
            "local.plan": self._plan(),
            "local.step": torch.tensor([self._step, *(began.get(each, NEVER) for each in self._fragments)]),
            **by_parameter("local.anchor.", flats("anchor"), params),
            **by_parameter("local.momentum.", flats("momentum"), params),
        }
        if began:
            mine |= by_parameter("snapshot.", flats("snapshot"), params)
            common |= by_parameter("local.difference.", flats("difference"), params)
        return [
            *super().pieces(),
            *(Piece.whole(f"local.rank{rank}.{name}", tensor) for name, tensor in mine.items()),
            *(Piece.whole(name, tensor, replica=rank) for name, tensor in common.items()),
        ]

    def _plan(self) -> Tensor:
        """What must be the same to continue exactly."""
        config = self._config
        return torch.tensor([self._group.size, config.every, config.fragments, config.overlap])

    def _state_of(self, fragment: Fragment) -> dict[str, Tensor]:
        """What a checkpoint holds of a fragment; its average only while that is not applied."""
        if self._kept is not None and fragment in self._kept.fragments:
            return self._kept.fragments[fragment]
        if any(fragment in each.fragments for each in self._under_way):
            return state_of(fragment)
        return {"anchor": fragment.anchor, "momentum": fragment.momentum}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Continue exactly if a run of as many workers and with these settings was saved; else from its one model.

        The momentum of the outer step is kept in both cases.
        """
        self._kept, self._under_way, self._step, self._num_samples = None, [], 0, [0, 0]
        super().load(saved)
        for fragment in self._fragments:
            fragment.restart()
        if "local.plan" not in saved:
            return
        load_by_parameter("local.momentum.", {each: each.momentum for each in self._fragments}, saved)
        if not torch.equal(saved["local.plan"], self._plan()):
            return
        mine = f"local.rank{self._group.rank}."
        own = {name.removeprefix(mine): saved[name] for name in saved if name.startswith(mine)}
        self._layout.load(own)
        self._update.load(own)
        load_by_parameter("local.anchor.", {each: each.anchor for each in self._fragments}, saved)
        *counts, self._num_samples = own["num_samples"].tolist()
        for fragment, count in zip(self._fragments, counts, strict=True):
            fragment.num_samples = count
        self._step, *began = saved["local.step"].tolist()
        self._expect_averages(dict(zip(self._fragments, began, strict=True)), own, saved)

    def _expect_averages(
        self, began: Mapping[Fragment, int], own: Mapping[str, Tensor], saved: Mapping[str, Tensor]
    ) -> None:
        """Restore the averages that had arrived and were not applied, in the order in which they began."""
        for step in sorted(set(began.values()) - {NEVER}):
            fragments = [fragment for fragment in self._fragments if began[fragment] == step]
            self._under_way.append(Averaging(step, fragments))
            for fragment in fragments:
                fragment.prepare(self._group)
            load_by_parameter("snapshot.", {each: each.snapshot for each in fragments}, own)
            load_by_parameter("local.difference.", {each: each.mean_difference for each in fragments}, saved)


def _count(num_samples: list[int], share: Share) -> None:
    num_samples[0] += share.num_samples
    num_samples[1] += share.num_samples_global
