"""The state that a compressed exchange keeps on each worker, by formula and as counted.

::

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
from shoal.memory.process import storages_of
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.memory import Component

FEEDBACK, MEMORIES, UNKNOWN = "error feedback", "codec memories", "exchange state"


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


def counted_state(exchange: Exchange, count: Callable[[dict[int, int]], int]) -> dict[str, int]:
    """The bytes of the state that an exchange holds, by component; `count` adds up tensors' memory."""
    if not isinstance(exchange, Compressed):
        return {}
    residuals, memories = exchange.held()
    kinds = {FEEDBACK: residuals, MEMORIES: memories}
    return {name: count(storages_of(tensors)) for name, tensors in kinds.items() if tensors}
