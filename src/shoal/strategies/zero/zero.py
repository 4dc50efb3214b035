"""`zero`: optimizer state, gradients and parameters are divided among the workers (ZeRO, stages 1 to 3)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn

from shoal.comm.alone import alone
from shoal.config.custom import calling, load
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch
from shoal.strategies.buckets.buffer_sync import BufferSync, buffer_sync_of
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.memory import FRESH, GATHERED, IN_FLIGHT, OFFLOADED, STATE, Component, Sizes, main_parts
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.lockstep import in_lockstep, in_rounds
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.replicas.sync_batchnorm import SyncBatchNorm, give_group
from shoal.strategies.strategy import Share, StepResult, Sums
from shoal.strategies.zero.offload import offload
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.shards import ShardOptions, Shards
from shoal.strategies.zero.units import UnitOf, cut


@final
class Zero(Sync):
    """Phase 1, gradients: each unit's are reduce-scattered to their owners, and freed. Phase 2, the guard decides.

    Phase 3, every worker updates the slices that it owns. Phase 4, the new weights become visible to all.

    ::

        stage 1    optimizer state divided: gradients are summed once per step, after they are added up over its parts
        stage 2    + gradients: summed after every part; a worker keeps only its own slices of the sums
        stage 3    + parameters: one copy that all workers of a machine map; elsewhere gathered before use

    Memory on N workers, for Ψ parameters in float32 with Adam: 8Ψ + 8Ψ/N, 4Ψ + 12Ψ/N, 16Ψ/N bytes, and two units
    (`unit_mib`) for gradients that are being sent, two more for gathered parameters. Costs a reduce-scatter of the
    gradients (stages 2 and 3: of every part) and an all-gather of the parameters (stage 3 without common memory: two
    of every part), and one small all-reduce: the guard's table. It makes all workers decide the same before any
    weights are written, whichever worker owns the bad numbers.

    With one part per step the sums have the bits of `ddp`. Models whose layers communicate, and gathered ones, run
    equally often on all workers: on empty batches where shares are uneven.

    A layout that sums along a tree of leaves (`--reduction invariant`) keeps gradients until they are whole: stages 2
    and 3 then sum once per step as well. With n leaves of a worker that takes 4Ψ (log₂ n + 1) bytes more.

    Not safe against the death of a worker in phase 3 where the weights are one copy: it is then half updated, and the
    run goes on from its last checkpoint.
    """

    def __init__(self, parts: SyncParts, config: ZeroConfig) -> None:
        super().__init__(parts)
        group, layout = parts.group, parts.layout
        self._shards: Shards | None = None
        self._buffers: BufferSync | None = None
        self._stage = config.stage
        # Refused before anything is moved.
        parts.update.check_divisible()
        keeper = offload(config.offload, config.offload_dir)
        if group.size == 1:
            if keeper is not None:
                self._update = parts.update.over(layout, keeper)
            return
        sync_initial_state(group, self.pieces())
        if config.sync_batchnorm:
            SyncBatchNorm.convert_sync_batchnorm(layout.model)
        has_collectives = give_group(layout.model, group)
        self._buffers = buffer_sync_of(group, layout.model)
        # Without overlap nothing is gained by sending during backward, unless memory is to be freed.
        early = config.stage > 1 or group.overlaps
        options = ShardOptions(config.stage, config.unit_mib, unit_of(config), config.unused, early)
        self._shards = Shards(group, layout, layout.on_final, options, self._guard.look)
        self._in_lockstep = has_collectives or self._shards.is_gathered
        self._update = parts.update.over(self._shards.slices, keeper)
        if keeper is not None:
            group.barrier().wait()  # all have memory for their state, or none begins
        if self._shards.is_gathered:
            self.copies = alone()  # all workers evaluate every batch together

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        shards, layout = self._shards, self._layout
        if shards is None:
            return super().step(share, lr)
        shards.gradients.restart()
        sums_once = self._stage == 1 or not layout.final_in_backward
        loss = self._sum_once(shards, share) if sums_once else self._sum_every_part(shards, share)
        with layout.span("exchange", "move"):
            if self._buffers is not None:
                self._buffers.update()
            shards.check_unused(share.num_samples > 0)
            verdict = self._guard.agree(loss, share)
        if verdict.may_update:
            self._update(lr, scale=verdict.scale)
            with layout.span("exchange", "move"):
                shards.publish()
        return StepResult(verdict.loss, verdict.stop_signal)

    def _sum_once(self, shards: Shards, share: Share) -> Tensor:
        """Add up gradients over the parts, then sum them over the workers."""
        layout = self._layout
        if self._in_lockstep:
            share = replace(share, parts=in_lockstep(self._group, share))
        if shards.is_gathered and not layout.final_in_backward:
            share = replace(share, before_part=shards.holding(share.before_part))
        loss = layout.gradients(share, before_last=shards.gradients.begin)
        with layout.span("exchange", "move"):
            shards.end_pass()
        return loss

    def _sum_every_part(self, shards: Shards, share: Share) -> Tensor:
        """Sum the gradients of every part over the workers; the owners add up the sums."""
        layout, group = self._layout, self._group
        parts = in_rounds(group, share.parts)
        if self._in_lockstep:
            parts = in_lockstep(group, share)
        loss = layout.zero
        for part in parts:
            if part is not None:
                loss = loss + layout.gradients(
                    replace(share, parts=(part,)), before_last=shards.gradients.begin
                )
            with layout.span("exchange", "move"):
                shards.end_pass()
        return loss

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch.

        Where parameters are gathered, all workers call this together, and divide the batch among them.
        """
        shards, group = self._shards, self._group
        if shards is None or not shards.is_gathered:
            return super().evaluate(batch)
        most = -(-batch.num_samples // group.size)
        first = group.rank * most
        has_samples = first < batch.num_samples
        # A worker without samples gathers with the others, on a sample that does not count.
        sums = super().evaluate(batch.part(first, first + most) if has_samples else batch.part(0, 1))
        shards.release()
        numbers = torch.cat([sums.packed().cpu(), torch.tensor([sums.predictions], dtype=torch.float64)])
        if not has_samples:
            numbers.zero_()
        group.all_reduce(numbers).wait()
        loss, correct, count, *_, predictions = numbers
        metrics = numbers[3:-1].to(sums.loss.device)
        return Sums(
            loss.to(sums.loss),
            correct.to(sums.correct),
            int(predictions),
            batch.num_samples,
            metrics,
            count.to(sums.loss.device),
        )

    def pieces(self) -> list[Piece]:
        """Parameters and optimizer state: in stage 3 this worker's part of each, in the others all parameters."""
        if self._shards is None or self._stage < 3:
            return super().pieces()
        return [*self._shards.pieces(), *self._update.pieces()]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the parts of a saved state that this worker holds."""
        if self._shards is None or self._stage < 3:
            super().load(saved)
        else:
            self._shards.load(saved)
            self._update.load(saved)


def unit_of(config: ZeroConfig) -> UnitOf | None:
    """The user's function that cuts the model into units, if there is one."""
    if config.unit_of is None:
        return None
    custom = Custom(name=config.unit_of)
    with calling("strategy.unit_of", custom):
        return load("strategy.unit_of", custom)


def zero_memory(sizes: Sizes) -> list[Component]:
    """The divided parts, and the units that are under way."""
    divided = sizes.workers > 1
    found = main_parts(sizes, (sizes.stage > 2, sizes.stage > 1, True))
    if divided:
        boxes = min(2, sizes.num_units)
        found.append(Component(IN_FLIGHT, f"{boxes}U", boxes * sizes.unit))
        if sizes.stage > 1:
            # While two units are being summed, backward produces the gradients of a third.
            found.append(Component(FRESH, "U", sizes.unit))
        if sizes.stage == 3 and not sizes.maps_memory:
            found.append(Component(GATHERED, f"{boxes}U", boxes * sizes.unit))
    if sizes.offload != "none":
        where = "in a file" if sizes.offload == "file" else "on the host"
        found = [
            Component(OFFLOADED, f"{each.formula}, {where}", each.num_bytes, counts=False)
            if each.name == STATE
            else each
            for each in found
        ]
        if sizes.offload_window:
            found.append(Component(STATE, "of one slice", sizes.offload_window))
    return found


def with_units(
    config: ZeroConfig, sizes: Sizes, model: nn.Module, params: Mapping[str, Tensor], largest_on_gpu: int
) -> Sizes:
    """The sizes, with those of the units and of the state that is kept elsewhere."""
    units = cut(model, params, sizes.workers, config.unit_mib * MIB, unit_of(config))
    unit = max(unit.num_bytes for unit in units)
    # The slice of a parameter is no larger than a worker's piece of its unit.
    largest_slice = min(largest_on_gpu, unit // sizes.workers)
    return replace(
        sizes,
        stage=config.stage,
        offload=config.offload,
        offload_window=largest_slice * sizes.state // max(1, sizes.weights),
        unit=unit,
        num_units=len(units),
    )
