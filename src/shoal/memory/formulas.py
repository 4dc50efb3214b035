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
buckets in flight; activations; working tensors of a pass; temporaries of the optimizer; slots; sums of leaves; and the
state that a compressed exchange keeps on each worker::

    error feedback    2·4Ψ    the residual, which the next step adds to the gradients, and memory for the one after it
    codec memories            what a codec keeps of a parameter from step to step:
                              powersgd    4·r·columns    the factor Q, with which the next step starts
                              dgc         4Ψ             the velocity
                              average     4              the average threshold

A bucket has a residual for all its gradients if it has one for any. `naive` sends each gradient by itself.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form
from shoal.config.schema import RunConfig
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.exchange import AllReduceConfig, ByConfig, RobustConfig
from shoal.errors import ConfigError
from shoal.strategies.ddp.ddp import ddp_memory
from shoal.strategies.local.local import local_memory
from shoal.strategies.memory import (
    ACTIVATIONS,
    FRESH,
    KEPT,
    LEAF_SUMS,
    SLOTS,
    TEMPORARIES,
    WORKING,
    Component,
    Sizes,
    dp_memory,
    whole_copy,
)
from shoal.strategies.onecopy.onecopy import onecopy_memory
from shoal.strategies.zero.zero import zero_memory

FEEDBACK, MEMORIES, UNKNOWN = "error feedback", "codec memories", "exchange state"


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
    temporaries = "not known" if sizes.temporaries is None else "chunks" if sizes.temporaries else "none"
    found += [
        Component(ACTIVATIONS, "off-loaded", sizes.activations, counts=False)
        if sizes.offloads_activations
        else Component(ACTIVATIONS, "saved for backward", sizes.activations),
        *([] if sizes.working is None else [Component(WORKING, "at the peak of a pass", sizes.working)]),
        Component(TEMPORARIES, temporaries, sizes.temporaries),
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


def exchange_state(config: RunConfig, params: Mapping[str, Tensor]) -> list[Component]:
    """The components of an exchange's state, for a worker that sends gradients of these parameters."""
    exchange = config.exchange
    if isinstance(exchange, AllReduceConfig | ByConfig | RobustConfig) or config.axes.get("data", 1) == 1:
        return []
    if not isinstance(exchange, CompressedConfig) or exchange.codec == "auto":
        return [Component(UNKNOWN, "not known in advance", None)]
    found: list[Component] = []
    encodings = {name: exchange.encoding_of(name) for name in params}
    has_feedback = {name: encoding.feedback for name, encoding in encodings.items()}
    if any(has_feedback.values()):
        is_alone = config.sync is not None and config.sync.name == "naive"
        num_bytes = sum(params[name].nbytes for name, has in has_feedback.items() if has or not is_alone)
        each = 2 * num_bytes / max(1, sum(param.numel() for param in params.values()))
        found.append(Component(FEEDBACK, f"{each:.3g}Ψ", 2 * num_bytes))
    memories, formulas = 0, set[str]()
    for name, param in params.items():
        form = Form(tuple(param.shape), param.dtype)
        codec = build_codec(encodings[name])
        formulas.add(codec.MEMORY)
        memory = codec.fitted(form).new_memory(form, seed=0)
        memories += 0 if memory is None else memory.nbytes
    if memories:
        formula = formulas.pop() if len(formulas) == 1 else "of each codec"
        found.append(Component(MEMORIES, formula, memories))
    return found


def total(found: list[Component]) -> int:
    """Bytes of all components that count and are known."""
    return sum(each.num_bytes or 0 for each in found if each.counts)


FORMULAS: dict[str, Callable[[Sizes], list[Component]]] = {
    "none": whole_copy,
    "naive": whole_copy,
    "ddp": ddp_memory,
    "dp": dp_memory,
    "onecopy": onecopy_memory,
    "zero": zero_memory,
    "local": local_memory,
}
"""By sync. A sync that is not here has no formula, and `shoal memory` says so."""
