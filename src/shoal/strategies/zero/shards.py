"""One worker's shards of a model: what it owns and updates, and how it sees the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.config.checks import memory_bytes
from shoal.errors import ConfigError
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.buckets.unused import Unused, present_somewhere, refuse_dropped, refuse_unused
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.layout.layout import Layout
from shoal.strategies.library.divided_training import Trained
from shoal.strategies.pieces.freed_memory import return_freed_memory
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.pieces.state import check_names, read_part
from shoal.strategies.zero.gather import GatheredParameters
from shoal.strategies.zero.gradients import OwnedGradients, UnitSlots
from shoal.strategies.zero.units import Unit, UnitOf, check_fits, cut


@dataclass(frozen=True)
class ShardOptions:
    """What is divided, and into units of which size."""

    stage: int
    """1: optimizer state; 2: gradients, too; 3: parameters, too."""
    unit_mib: float
    unit_of: UnitOf | None = None
    """A user's cut into units."""
    unused: Unused = "refuse"
    early: bool = True
    """Whether gradients are summed during backward. Stages 2 and 3 free them there."""


@final
class Shards:
    """The parameters of a model in units, of which this worker owns a piece each. Constructing is a collective.

    ::

        stage 1, 2    every worker has all parameters; after an update, each unit is gathered from its owners
        stage 3       on one machine (threads, shared memory), there is one copy, which all workers map: to gather is
                      nothing, and an update ends with a barrier
                      elsewhere, units are gathered while they are used (`gather.py`)

    All workers have the same parameters before. They become contiguous, and change their memory.
    """

    def __init__(
        self,
        group: Group,
        whole: Layout | Trained,
        on_final: OnFinal,
        options: ShardOptions,
        look: Callable[[Tensor], None] = lambda gradients: None,
    ) -> None:
        model, params = whole.model, whole.params
        on_cpu = all(param.is_cpu for param in params.values())
        if group.kind == "threads" and group.size > 1 and options.stage > 1 and not on_cpu:
            raise ConfigError(
                f"zero stage {options.stage} does not support thread workers on a GPU: torch runs all backward passes "
                "of a GPU in one thread, where each worker would wait for the others",
                "Start processes (--launcher processes), or use stage 1.",
            )
        self._group, self._params, self._whole = group, params, whole
        self._is_divided = options.stage == 3
        self._unused = options.unused
        units = cut(model, params, group.size, options.unit_mib * MIB, options.unit_of)
        check_fits(units, group.size if group.maps_memory else 1, _memory_of(units))
        self._gathered: GatheredParameters | None = None
        self._wholes: list[Tensor] = []
        if options.stage == 3 and not (group.maps_memory and on_cpu):
            self._gathered = GatheredParameters(group, model, params, units)
            own = [memory.piece for memory in self._gathered.units]
        else:
            if self._is_divided:
                model.register_forward_pre_hook(partial(_note_gathers, group, units))
            self._wholes = [self._moved(unit) for unit in units]
            own = [
                unit.piece_of(memory, group.rank) for unit, memory in zip(units, self._wholes, strict=True)
            ]
        self.gradients = OwnedGradients(
            group,
            units,
            params,
            on_final,
            options.early,
            look,
            left=None if self._gathered is None else self._gathered.gradients_are_final,
            # Stage 1 has all gradients until they are summed: the sums take their place.
            keeps_sums=options.stage > 1,
        )
        self.slices = Slices(whole, group)
        for unit, memory, slots in zip(units, own, self.gradients.slots, strict=True):
            self._own(unit, memory, slots)
        self._sums = {id(owned): view for slots in self.gradients.slots for owned, view in slots.owned}
        """The gradient of each slice."""
        self._to_gather = [] if self._is_divided else [*zip(self._wholes, own, strict=True)]
        """Memory of each unit, and this worker's piece of it, where an update ends with an all-gather."""
        return_freed_memory()  # where the parameters were

    @property
    def is_gathered(self) -> bool:
        """Whether modules gather parameters when they are called: then all workers must call them equally often."""
        return self._gathered is not None

    def _moved(self, unit: Unit) -> Tensor:
        """Move the unit's parameters to memory of the group: one for all workers in stage 3."""
        dtype, device = unit.kind
        group = self._group
        memory = (
            group.common(unit.numel, dtype) if self._is_divided else group.empty(unit.numel, dtype, device)
        )
        views = unit.views(memory)
        if not self._is_divided:
            for name, view in zip(unit.shapes, views, strict=True):
                view.copy_(self._params[name].detach())
        else:
            for name, start, stop, offset in unit.owned_by(group.rank):
                part = self._params[name].detach().reshape(-1)[start:stop]
                memory[offset : offset + len(part)].copy_(part)
        for name, view in zip(unit.shapes, views, strict=True):
            self._params[name].data = view
        group.barrier().wait()
        return memory

    def _own(self, unit: Unit, piece: Tensor, slots: UnitSlots) -> None:
        first = self._group.rank * unit.piece
        for name, start, stop, offset in unit.owned_by(self._group.rank):
            here = slice(offset - first, offset - first + stop - start)
            gradient = slots.sum[here]
            self.slices.own(name, start, piece[here], gradient)
            slots.owned.append((self.slices.params[name], gradient))

    # One step.

    def holding(self, before_part: Callable[[int], None]) -> Callable[[int], None]:
        """`before_part`, which then also has units freed in backward passes whose gradients are not sent."""

        def before(part: int) -> None:
            self.gradients.hold()
            before_part(part)

        return before

    def end_pass(self) -> None:
        """Wait until this worker has its sums of a pass; without a pass, take part with zeros."""
        self.gradients.complete()
        if self._gathered is not None:
            self._gathered.check_gathered(self.gradients.present)
            self._gathered.end_pass()

    def release(self) -> None:
        """Free gathered parameters."""
        if self._gathered is not None:
            self._gathered.end_pass()

    def check_unused(self, had_samples: bool, reached: Collection[str] = ()) -> None:
        """After the passes of a step: parameters without a gradient are refused, or left out of the update.

        Gradients that `reached` parameters and are gone are refused in any case.
        """
        present = self.gradients.present
        if reached and (
            dropped := [name for name in self._params if name in reached and name not in present]
        ):
            refuse_dropped(self._group, dropped, len(self._params))
        if self._unused == "refuse":
            if had_samples and len(present) < len(self._params):
                missing = [name for name in self._params if name not in present]
                refuse_unused(self._group, missing, len(self._params))
            return
        somewhere = present_somewhere(self._group, [name in present for name in self._params])
        for name, is_present in zip(self._params, somewhere, strict=True):
            if (owned := self.slices.params.get(name)) is not None:
                owned.grad = self._sums[id(owned)] if is_present else None

    def publish(self) -> None:
        """After an update: all workers see all owners' new weights."""
        if self._is_divided:
            if self._gathered is None:
                self._group.barrier().wait()
            return
        works = [self._group.all_gather(whole, own) for whole, own in self._to_gather]
        for work in works:
            work.wait()

    # State.

    def fill(self, name: str, part: Callable[[int, int], Tensor]) -> None:
        """Give a parameter its values here: all of them, or in stage 3 those that this worker owns.

        `part` gives the elements from one number to another of the flattened whole.
        """
        if not self._is_divided:
            param = self._params[name].detach()
            param.copy_(part(0, param.numel()).view(param.shape))
        elif (owned := self.slices.params.get(name)) is not None:
            start = self.slices.starts[name]
            owned.copy_(part(start, start + owned.numel()))

    def pieces(self) -> list[Piece]:
        """The model's state: in stage 3 this worker's part of every parameter; everything else as `whole` holds it."""
        if not self._is_divided:
            return self._whole.pieces()
        pieces: list[Piece] = []
        for piece in self._whole.pieces():
            param = self._whole.trained_names.get(piece.name.removeprefix("model."))
            if param is None:
                pieces.append(piece)
            elif param in self.slices.params:
                owned = self.slices.params[param].detach()
                pieces.append(Piece(piece.name, owned, self.slices.place_of(param)))
        return pieces

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this worker's part of the whole tensors `model.<name>`, one at a time. A collective."""
        held = {piece.name.removeprefix("model."): piece for piece in self._whole.pieces()}
        tensors = {name: piece.tensor for name, piece in held.items()}
        check_names(tensors, saved, "model.", self._whole.all_names)
        mine = {piece.name: piece for piece in self.pieces()}
        for name, piece in held.items():
            # Also what this worker owns nothing of is checked, so that all workers find the same error.
            own = mine.get(piece.name, piece)
            part = read_part(name, saved[piece.name], own.place, own.tensor)
            if piece.name in mine:
                own.tensor.copy_(part)
        self._group.barrier().wait()


def _note_gathers(group: Group, units: Sequence[Unit], model: nn.Module, args: Any) -> None:
    """Count what `GatheredParameters` sends in a pass forward and back: the last unit stays in between."""
    del model, args
    if torch.is_grad_enabled():
        for unit in (*units, *units[:-1]):
            group.note_mapped("all_gather", unit.piece, unit.kind.dtype)


def _memory_of(units: Sequence[Unit]) -> float:
    """Bytes of the memory in which the units are: the host's, or a GPU's."""
    device = units[0].kind.device
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else memory_bytes()
