"""The memory of `zero` in a step, as a formula; its units, counted."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from shoal.strategies.buckets.plan import MIB
from shoal.strategies.memory import FRESH, GATHERED, IN_FLIGHT, OFFLOADED, STATE, Component, Sizes, main_parts
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.units import cut
from shoal.strategies.zero.zero import unit_of


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
        found = [_offloaded(sizes, each) if each.name == STATE else each for each in found]
        if sizes.offload_window:
            found.append(Component(STATE, "of one slice", sizes.offload_window))
    return found


def _offloaded(sizes: Sizes, state: Component) -> Component:
    where = "in a file" if sizes.offload == "file" else "on the host"
    return Component(OFFLOADED, f"{state.formula}, {where}", state.num_bytes, counts=False)


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
