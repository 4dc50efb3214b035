"""Parameters that exist while they are used: gather, compute, release; the next unit is gathered in the meantime.

::

    forward     gather 0 │ compute 0          │ compute 1          │ compute 2
                         │ gather 1           │ gather 2, free 0   │ free 1
    backward    compute 2 │ compute 1          │ compute 0
                gather 1  │ gather 0, free 2   │ free 1

Each worker keeps its piece of every unit. A unit is gathered before a module that uses it is called, and before
backward reaches the outputs of such a module. It is freed in forward when another unit is gathered and no module that
uses it is running, and in backward when all its gradients are final.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group, Work
from shoal.errors import ConfigError
from shoal.strategies.library.backward_pass import NO_PASS, current_pass, hook_tensors
from shoal.strategies.zero.units import Unit, users_of

_START = ("start", -1)


class UnitMemory:
    """A unit's parameters: as memory of the whole unit, if that is gathered, and always this worker's piece."""

    def __init__(self, unit: Unit, params: Mapping[str, Tensor], group: Group) -> None:
        self._group = group
        self.unit = unit
        self.piece = torch.empty(unit.piece, dtype=unit.kind.dtype, device=unit.kind.device)
        self._whole = torch.zeros(unit.numel, dtype=unit.kind.dtype, device=unit.kind.device)
        self._storage = self._whole.untyped_storage()
        self._num_bytes = self._storage.nbytes()
        self._params = [params[name] for name in unit.shapes]
        # Tensors that autograd saves share the storage of these views, which is freed and filled again.
        self._views = unit.views(self._whole)
        # A use that nothing gathers for gives NaN, which never reaches the weights, and not a read of freed memory.
        nan = torch.full((), torch.nan, dtype=unit.kind.dtype, device=unit.kind.device)
        self._absent = [nan.expand(view.shape) for view in self._views]
        self.work: Work | None = None
        """While it is being gathered."""
        self.is_here = False
        self.num_running = 0
        """Calls of modules under way that use it."""
        self.is_in_backward = False
        """Whether backward needs it until its gradients are final."""
        for param, view in zip(self._params, self._views, strict=True):
            view.copy_(param.detach())
        self.piece.copy_(unit.piece_of(self._whole, group.rank))
        self.free()

    def start(self) -> None:
        """Start to gather it."""
        if self.work is None and not self.is_here:
            self._storage.resize_(self._num_bytes)
            self.work = self._group.all_gather(self._whole, self.piece)

    def wait(self) -> None:
        """Return when the parameters are here."""
        self.start()
        if self.work is not None:
            self.work.wait()
            self.work, self.is_here = None, True
            for param, view in zip(self._params, self._views, strict=True):
                param.data = view

    def free(self) -> None:
        """Free all of it but this worker's piece."""
        if self.work is not None:
            self.work.wait()
            self.work = None
        for param, absent in zip(self._params, self._absent, strict=True):
            param.data = absent
        self._storage.resize_(0)
        self.is_here = False


@final
class GatheredParameters:
    """Gathers units for the modules that use them. All workers call the modules in the same order.

    Memory: two units at a time, three where a module that has parameters of its own calls others. Costs one all-gather
    of every unit in forward and one in backward.

    Not safe: parameters that a module uses without being called, or that another module uses directly. (Modules of
    torch that do so are known: `USED_FROM_ABOVE`.) If the parameters of both modules are in one unit, it is safe. A
    parameter whose module is never called is an error (`check_gathered`).
    """

    def __init__(
        self, group: Group, model: nn.Module, params: Mapping[str, Tensor], units: Sequence[Unit]
    ) -> None:
        self._overlaps = group.overlaps
        self.units = [UnitMemory(unit, params, group) for unit in units]
        self._following: dict[tuple[str, int], int] = {}
        """The unit that was gathered after a phase had reached a unit, as the last pass has shown."""
        self._reached = _START
        names = {module: name for name, module in model.named_modules()}
        of_unit = {name: unit.index for unit in units for name in unit.shapes}
        named_params = {id(param): name for name, param in params.items()}
        self._uncalled: dict[nn.Module, set[str]] = {}
        """Modules that were not called yet, each with the parameters that it has gathered while it runs."""
        self._never_gathered = set(params)
        """Parameters that no module was called for."""
        for module, needed in users_of(model, params, units).items():
            memories = [self.units[index] for index in needed]
            inside = {named_params[id(param)] for param in module.parameters() if id(param) in named_params}
            self._uncalled[module] = {name for name in inside if of_unit[name] in needed}
            after = partial(self._after_forward, names[module], memories)
            module.register_forward_pre_hook(partial(self._before_forward, memories))
            # Called after errors, too: a checkpoint ends its second forward pass with one.
            module.register_forward_hook(after, always_call=True)

    def _before_forward(self, memories: Sequence[UnitMemory], module: nn.Module, args: Any) -> None:
        del args
        if module in self._uncalled:
            self._never_gathered -= self._uncalled.pop(module)
        for memory in memories:
            memory.num_running += 1
        self._need(memories, "forward" if current_pass() == NO_PASS else "recompute")

    def _after_forward(
        self, name: str, memories: Sequence[UnitMemory], module: nn.Module, args: Any, output: Any
    ) -> None:
        del args
        for memory in memories:
            memory.num_running -= 1
        if not torch.is_grad_enabled() or output is None:
            return
        if not hook_tensors(output, partial(self._before_backward, memories)):
            raise ConfigError(
                f"no tensor was found in the output of module '{name}' ({type(module).__name__}), of type "
                f"{type(output).__name__}: stage 3 needs one to gather parameters for backward",
                "Return tensors in tuples, lists, mappings or dataclasses, or use stage 2.",
            )

    def _before_backward(self, memories: Sequence[UnitMemory], gradient: Tensor) -> None:
        del gradient
        for memory in memories:
            memory.is_in_backward = True
        self._need(memories, "backward")

    def _need(self, memories: Sequence[UnitMemory], phase: str) -> None:
        """Have these units here; free others, and start to gather the next one."""
        for memory in memories:
            if not memory.is_here:
                self._following[self._reached] = memory.unit.index
                for other in self.units:
                    is_needed = other.num_running > 0 or other.is_in_backward or other in memories
                    if other.is_here and not is_needed:
                        other.free()
                memory.wait()
            self._reached = phase, memory.unit.index
        if self._overlaps and (following := self._following.get(self._reached)) is not None:
            self.units[following].start()

    def gradients_are_final(self, unit: Unit) -> None:
        """Free a unit that backward has finished with."""
        memory = self.units[unit.index]
        memory.is_in_backward = False
        if memory.is_here and not memory.num_running:
            memory.free()

    def check_gathered(self, present: AbstractSet[str]) -> None:
        """Refuse a parameter that has a gradient, so it was used, although it was never gathered: it was NaN."""
        if self._never_gathered and (used := sorted(self._never_gathered & present)):
            module = used[0].rpartition(".")[0]
            raise ConfigError(
                f"parameter '{used[0]}' is used without a call of its module '{module}', so it was not gathered",
                "Put it in one unit with the module that uses it: let unit_of return the same for all parameters of a "
                "block, or take a larger unit_mib; or use stage 2.",
            )

    def end_pass(self) -> None:
        """Free everything: the weights are about to change, or no pass follows."""
        self._reached = _START
        for memory in self.units:
            memory.num_running, memory.is_in_backward = 0, False
            if memory.is_here or memory.work is not None:
                memory.free()
