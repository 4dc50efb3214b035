"""The memory of one worker in one step, as formulas: one component after the other.

::

    Ψ    trained parameters that the worker's part of the model has (all of them, unless a layout divides the model)
    N    workers of the data axis
    U    the largest unit of `zero`
    G    the largest gradient, and all gradients below 256 KiB
    S    the slots through which a worker of a shared-memory group sends
    L    leaves of a worker, with `--reduction invariant`
    B    the largest bucket (of one worker: the largest gradient), with `--memory.step_in_backward`

    Adam in float32    ddp       16Ψ                    parameters 4Ψ, gradients 4Ψ, moments 8Ψ
                       zero 1    8Ψ + 8Ψ/N
                       zero 2    4Ψ + 12Ψ/N
                       zero 3    16Ψ/N                  and gathered units, unless all workers map one memory
                       onecopy   4Ψ/N + 4Ψ + 8Ψ/N

Beside these, each component has a line of its own: fresh gradients, before they are copied to a bucket or a unit;
buckets in flight; activations; working tensors of a pass; temporaries of the optimizer; slots; sums of leaves.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal.errors import ConfigError

GRADIENTS, STATE, PARAMETERS = "gradients", "optimizer state", "parameters"
FRESH, IN_FLIGHT, GATHERED = "fresh gradients", "buckets in flight", "gathered units"
ACTIVATIONS, WORKING = "activations", "working tensors"
TEMPORARIES, SLOTS, FLAT = "optimizer temporaries", "exchange slots", "flat copies"
ANCHORS, OFFLOADED, OTHER = "averaging", "offloaded state", "other"
LEAF_SUMS, KEPT = "sums of leaves", "kept gradients"


@dataclass(frozen=True)
class Sizes:
    """The numbers in the formulas. Bytes, unless they count something."""

    num_params: int
    """Ψ."""
    workers: int
    """N."""
    weights: int
    """Trained parameters."""
    state: int
    """Optimizer state of all trained parameters, wherever it is kept."""
    updated_in_backward: int = 0
    """The largest part of the gradients that is there before its parameters are updated, with
    `--memory.step_in_backward`; 0: all gradients are."""
    added: int = 0
    """The largest gradient of a part that is added to those of the parts before it; 0: nothing is accumulated."""
    fixed: int = 0
    """Buffers and frozen parameters, which no worker divides."""
    largest: int = 0
    """G."""
    unit: int = 0
    """U."""
    num_units: int = 1
    maps_memory: bool = True
    """Whether all workers map the memory of one group."""
    stage: int = 1
    """Of `zero`."""
    offload: str = "none"
    """Where `zero` keeps its optimizer state."""
    offload_window: int = 0
    """State that is on the device at a time, where it is kept elsewhere."""
    averages_state: bool = False
    """Whether `local` averages optimizer state with the weights."""
    activations: int | None = None
    """Saved for backward; None where they are not known."""
    offloads_activations: bool = False
    """Whether activations wait for backward elsewhere."""
    working: int | None = None
    """Tensors beside the activations that are in memory, at the peak of forward and backward; None where they are not
    known."""
    temporaries: int | None = 0
    """Of the optimizer's step; None where they are not known: of a user's own optimizer."""
    slots: int = 0
    """S."""
    leaves: int = 0
    """L; 0 where gradients are not summed over leaves."""
    keeps_gradients: bool = False
    """Whether the layout keeps the memory of its gradients between steps, as a pipeline's stage does."""


@dataclass(frozen=True)
class Component:
    """One part of a worker's memory."""

    name: str
    formula: str
    num_bytes: int | None
    """None: not known in advance."""
    counts: bool = True
    """Whether it is memory of the device that trains; offloaded state is elsewhere."""


def components(sync: str, sizes: Sizes) -> list[Component]:
    """The components of a worker's memory under a sync, the largest worker's where they differ.

    >>> sizes = Sizes(num_params=1000, workers=4, weights=4000, state=8000)
    >>> [(each.name, each.formula, each.num_bytes) for each in components("onecopy", sizes)][:3]
    [('parameters', '4Ψ/N', 1000), ('gradients', '4Ψ', 4000), ('optimizer state', '8Ψ/N', 2000)]
    """
    if sync not in FORMULAS:
        raise ConfigError(
            f"there is no formula for the memory of sync {sync}",
            f"There are formulas for {', '.join(FORMULAS)}.",
        )
    if sizes.workers == 1 and sync not in ("zero", "local"):
        sync = "none"
    found = FORMULAS[sync](sizes)
    if sizes.leaves:
        found = _with_leaf_sums(found, sizes)
    elif sizes.added and all(each.name != FRESH for each in found):
        found.append(Component(FRESH, "the largest", sizes.added))
    if sizes.keeps_gradients and sizes.workers > 1:
        found = _with_kept_gradients(found, sizes)
    found += [
        Component(ACTIVATIONS, "off-loaded", sizes.activations, counts=False)
        if sizes.offloads_activations
        else Component(ACTIVATIONS, "saved for backward", sizes.activations),
        *([] if sizes.working is None else [Component(WORKING, "at the peak of a pass", sizes.working)]),
        Component(TEMPORARIES, _of_temporaries(sizes.temporaries), sizes.temporaries),
    ]
    if sizes.slots and sizes.workers > 1:
        # Every worker sends through its slots; where buckets are in the group's memory, rank 0 alone did, at the start.
        is_naive = sync == "naive"
        found.append(
            Component(SLOTS, "S" if is_naive else "S/N", sizes.slots // (1 if is_naive else sizes.workers))
        )
    return found


def _with_leaf_sums(found: list[Component], sizes: Sizes) -> list[Component]:
    """The sums that a binary counter of leaves holds, and the leaf that is being computed: ⌊log₂ L⌋ + 1 gradients.

    Where gradients have memory of their own, nothing is copied there before all leaves are summed. Elsewhere the last
    sum becomes the gradients.
    """
    is_apart = any(each.name == FRESH for each in found)
    count = sizes.leaves.bit_length() - (not is_apart)
    each = f"{sizes.weights / max(1, sizes.num_params):.3g}Ψ"
    formula = f"{each}·(⌊log₂ L⌋ + 1)" if is_apart else f"{each}·⌊log₂ L⌋"
    return [
        *(each for each in found if each.name != FRESH),
        Component(LEAF_SUMS, formula, count * sizes.weights),
    ]


def _with_kept_gradients(found: list[Component], sizes: Sizes) -> list[Component]:
    """Gradients that stay where they are when they are summed: the sums have memory beside them."""
    each = f"{sizes.weights / max(1, sizes.num_params):.3g}Ψ"
    is_apart = any(each.name == FRESH for each in found)
    kept = (
        Component(KEPT, each, sizes.weights)
        if is_apart
        else Component(KEPT, f"{each}/N", sizes.weights // sizes.workers)
    )
    return [*(each for each in found if each.name != FRESH), kept]


def _of_temporaries(num_bytes: int | None) -> str:
    return "not known" if num_bytes is None else "chunks" if num_bytes else "none"


def total(found: list[Component]) -> int:
    """Bytes of all components that count and are known."""
    return sum(each.num_bytes or 0 for each in found if each.counts)


def _main(sizes: Sizes, divided: tuple[bool, bool, bool]) -> list[Component]:
    """Parameters, gradients and state, each whole or divided among the workers."""
    psi, size = max(1, sizes.num_params), sizes.workers
    found: list[Component] = []
    whole = (sizes.weights, sizes.weights, sizes.state)
    for name, num_bytes, is_divided in zip((PARAMETERS, GRADIENTS, STATE), whole, divided, strict=True):
        formula = f"{num_bytes / psi:.3g}Ψ" if num_bytes else "0"
        is_divided = is_divided and size > 1
        mine = -(-num_bytes // size) if is_divided else num_bytes
        if name == PARAMETERS and sizes.fixed:
            formula, mine = f"{formula}{'/N' * is_divided} + fixed", mine + sizes.fixed
        elif name == GRADIENTS and sizes.updated_in_backward:
            formula, mine = "B", sizes.updated_in_backward
        elif num_bytes:
            formula += "/N" * is_divided
        found.append(Component(name, formula, mine))
    return found


def _none(sizes: Sizes) -> list[Component]:
    return _main(sizes, (False, False, False))


def _ddp(sizes: Sizes) -> list[Component]:
    if sizes.updated_in_backward:
        # Two buckets are summed and used at a time, while backward produces the gradients of a third.
        return [*_none(sizes), Component(IN_FLIGHT, "2B", 2 * sizes.updated_in_backward)]
    # A gradient has memory of its own until it is copied to its bucket, which then is the gradient.
    return [*_none(sizes), Component(FRESH, "G", sizes.largest)]


def _dp(sizes: Sizes) -> list[Component]:
    # Of rank 0. The gradients are copied before they are reduced; all workers read one copy of the parameters.
    bytes_each = sizes.weights / max(1, sizes.num_params)
    flat = sizes.weights + (sizes.weights + sizes.fixed) // sizes.workers
    return [*_none(sizes), Component(FLAT, f"{bytes_each:.3g}Ψ + {bytes_each:.3g}Ψ/N", flat)]


def _onecopy(sizes: Sizes) -> list[Component]:
    return [*_main(sizes, (True, False, True)), Component(FRESH, "G", sizes.largest)]


def _local(sizes: Sizes) -> list[Component]:
    each = sizes.weights / max(1, sizes.num_params)
    state = sizes.state if sizes.averages_state else 0
    bucket = f"{each:.3g}Ψ" + (f" + {state / max(1, sizes.num_params):.3g}Ψ" if state else "")
    return [
        *_none(sizes),
        # The weights after the last averaging and before the next, and the momentum of the outer step.
        Component(ANCHORS, f"{3 * each:.3g}Ψ", 3 * sizes.weights),
        Component(IN_FLIGHT, bucket, sizes.weights + state),
    ]


def _zero(sizes: Sizes) -> list[Component]:
    divided = sizes.workers > 1
    found = _main(sizes, (sizes.stage > 2, sizes.stage > 1, True))
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


FORMULAS: dict[str, Callable[[Sizes], list[Component]]] = {
    "none": _none,
    "naive": _none,
    "ddp": _ddp,
    "dp": _dp,
    "onecopy": _onecopy,
    "zero": _zero,
    "local": _local,
}
"""By sync. A sync that is not here has no formula, and `shoal memory` says so."""
