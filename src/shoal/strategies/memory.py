"""The parts of a worker's memory, and the numbers in their formulas. `single`, `naive` and `dp` have theirs here."""

from dataclasses import dataclass

GRADIENTS, STATE, PARAMETERS = "gradients", "optimizer state", "parameters"
FRESH, IN_FLIGHT, GATHERED = "fresh gradients", "buckets in flight", "gathered units"
ACTIVATIONS, WORKING = "activations", "working tensors"
TEMPORARIES, SLOTS, FLAT = "optimizer temporaries", "exchange slots", "flat copies"
ANCHORS, OFFLOADED, OTHER = "averaging", "offloaded state", "other"
LEAF_SUMS, KEPT = "sums of leaves", "kept gradients"


@dataclass(frozen=True)
class Sizes:
    """The numbers in the formulas (`shoal.memory.formulas` explains them). Bytes, unless they count something."""

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


def main_parts(sizes: Sizes, divided: tuple[bool, bool, bool]) -> list[Component]:
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


def whole_copy(sizes: Sizes) -> list[Component]:
    """Everything on every worker: of `single` and `naive`."""
    return main_parts(sizes, (False, False, False))


def dp_memory(sizes: Sizes) -> list[Component]:
    """Of rank 0. The gradients are copied before they are reduced; all workers read one copy of the parameters."""
    bytes_each = sizes.weights / max(1, sizes.num_params)
    flat = sizes.weights + (sizes.weights + sizes.fixed) // sizes.workers
    return [*whole_copy(sizes), Component(FLAT, f"{bytes_each:.3g}Ψ + {bytes_each:.3g}Ψ/N", flat)]
