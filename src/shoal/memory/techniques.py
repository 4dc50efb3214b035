"""Every technique that makes training take less memory, in one table.

The function of a technique returns the settings to try for a run, as changed configs. What a run does not support is
refused when its config is made (`config/combinations.py`), and is left out here. `shoal memory` shows all of them, and
`--memory.budget` chooses among them. To add one: a function, a line in `TECHNIQUES`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from shoal.config.schema import RunConfig
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.model import Resnet18Config
from shoal.config.sections.values import Custom
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.memory.measure import by_formula
from shoal.memory.sized_pass import without_memory
from shoal.memory.sizes import may_use_gpu, small_run
from shoal.memory.trial import Trial, try_each
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.memory import ACTIVATIONS, GRADIENTS, PARAMETERS, STATE
from shoal.training.memory.checkpointing import blocks_of

Change = Callable[[RunConfig], RunConfig]
"""Sets a technique; raises a ConfigError where it is not supported."""
NEUTRAL = MemoryConfig()
Parts = dict[str, int | None]
"""Bytes of each component; None: not known."""
FREED = "freed memory"
"""Memory that the C library keeps: no tensor, so no component of the formulas."""


@dataclass(frozen=True)
class Setting:
    """One setting of a technique."""

    flags: str
    change: Change
    usual_time: float = 1.0
    """Of a step, as a multiple of the plain one's, before it is measured: cheap ones are tried first."""
    is_exact: bool = True
    """Whether training computes the same, rounding of sums in another order aside."""


@dataclass(frozen=True)
class Technique:
    """A way to need less memory."""

    settings: Callable[[RunConfig], Iterator[Setting]]
    """The settings to try; the smallest savings first."""
    takes_away: str
    """The component that becomes smaller."""
    formula: str
    """The formula of the memory that is left of the component."""


def _memory(flags: str, usual_time: float, is_exact: bool = True, **values: Any) -> Setting:
    def change(config: RunConfig) -> RunConfig:
        return replace(config, memory=replace(config.memory, **values))

    return Setting(flags, change, usual_time, is_exact)


def checkpoint(config: RunConfig) -> Iterator[Setting]:
    """Recompute blocks in backward: a quarter of them, half of them, all of them."""
    if config.memory.checkpoint == NEUTRAL.checkpoint:
        blocks = _num_blocks(replace(config, memory=NEUTRAL))
        for every in (each for each in (4, 2, 1) if each <= blocks):
            yield _memory(f"--memory.checkpoint {every}", 1 + 0.3 / every, checkpoint=every)


@lru_cache(maxsize=8)
def _num_blocks(config: RunConfig) -> int:
    """Blocks of the run's model, 0 if there are none."""
    small = small_run(config)
    try:
        return len(blocks_of(without_memory(small, load(small.data))))
    except ConfigError:
        return 0


def offload(config: RunConfig) -> Iterator[Setting]:
    """Let activations wait for backward elsewhere."""
    if config.memory.offload == NEUTRAL.offload:
        for to in ("host", "file") if config.device == "cuda" or may_use_gpu(config) else ("file",):
            yield _memory(f"--memory.offload {to}", 1.5, offload=to)


def accumulation(config: RunConfig) -> Iterator[Setting]:
    """Compute a batch in parts, one after the other, and add up their gradients."""
    batch = config.train.batch_size
    if not isinstance(batch, int) or config.train.reduction == "invariant":
        return
    share = -(-batch // config.axes.get("data", 1))
    # A pipeline has micro-batches of its own.
    at_once = min(share, config.train.micro_batch) if "pipeline" not in config.axes else 1
    # Batch statistics depend on which samples are computed together; a user's own model may have them.
    model = config.model
    has_batch_norm = isinstance(model, Resnet18Config) and model.norm == "batch"
    is_exact = not isinstance(model, Custom) and not has_batch_norm
    for parts in (2, 4, 8):
        if at_once >= 2 * parts:
            size = -(-at_once // parts)
            yield Setting(
                f"--micro-batch {size}",
                lambda config, size=size: replace(config, train=replace(config.train, micro_batch=size)),
                1 + 0.02 * parts,
                is_exact,
            )


def value(
    name: str, to: Any, usual_time: float, is_exact: bool = True
) -> Callable[[RunConfig], Iterator[Setting]]:
    """Set one setting of memory, where the run has its default."""

    def settings(config: RunConfig) -> Iterator[Setting]:
        if getattr(config.memory, name) == getattr(NEUTRAL, name):
            flags = f"--memory.{name}" if to is True else f"--memory.{name} {to}"
            yield _memory(flags, usual_time, is_exact, **{name: to})

    return settings


def return_freed(config: RunConfig) -> Iterator[Setting]:
    """Have the C library keep no freed memory."""
    if keeps_freed_memory(config):
        yield _memory("--memory.return_freed", 1.6, return_freed=True)


def keeps_freed_memory(config: RunConfig) -> bool:
    """Whether the C library of a worker keeps freed memory, in a heap whose gaps grow while it trains."""
    returns = config.memory.return_freed or config.memory.offload == "file"
    return not returns and not may_use_gpu(config)


TECHNIQUES: dict[str, Technique] = {
    "checkpointing": Technique(checkpoint, ACTIVATIONS, "inputs of blocks + one block"),
    "off-loading": Technique(offload, ACTIVATIONS, "one operation's"),
    "accumulation": Technique(accumulation, ACTIVATIONS, "A / parts"),
    "step in backward": Technique(value("step_in_backward", True, 1.01), GRADIENTS, "G"),
    "returning freed memory": Technique(return_freed, FREED, "what is in use"),
    "8-bit state": Technique(value("state_bits", 8, 1.7, is_exact=False), STATE, "a quarter, and scales"),
    "bf16 parameters": Technique(value("parameters", "bf16", 1.4, is_exact=False), PARAMETERS, "2Ψ"),
}
"""By name. A is the activations of a worker's whole share."""


@dataclass(frozen=True)
class MemoryVariant:
    """A run with some techniques."""

    config: RunConfig
    techniques: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """The flags of each technique."""
    is_exact: bool = True
    usual_time: float = 1.0
    """Of a step, as a multiple of the plain one's: what the settings cost together."""

    @property
    def flags(self) -> str:
        """All flags, as a user writes them; empty for the run as it is."""
        return " ".join(self.settings)


def single_variants(config: RunConfig) -> list[MemoryVariant]:
    """The run with one technique each, in every setting that it supports."""
    return [variant for name in TECHNIQUES for variant in _with(name, MemoryVariant(config))]


def combined(config: RunConfig, variants: list[MemoryVariant]) -> list[MemoryVariant]:
    """All combinations of two or more of these variants with one technique each, at most one of each technique."""
    found = [MemoryVariant(config)]
    for name in TECHNIQUES:
        flags = {each.flags for each in variants if each.techniques == (name,)}
        found = [
            longer
            for each in found
            for longer in (each, *(more for more in _with(name, each) if more.settings[-1] in flags))
        ]
    return [each for each in found if len(each.techniques) > 1]


def _with(name: str, variant: MemoryVariant) -> Iterator[MemoryVariant]:
    for setting in TECHNIQUES[name].settings(variant.config):
        try:
            config = setting.change(variant.config)
        except ConfigError:
            continue  # not with this run
        yield MemoryVariant(
            config,
            (*variant.techniques, name),
            (*variant.settings, setting.flags),
            variant.is_exact and setting.is_exact,
            variant.usual_time + setting.usual_time - 1,
        )


# The techniques of a run as rows: bytes by formula, bytes measured, and the time of a step.


def technique_rows(config: RunConfig, is_measured: bool = True) -> list[dict[str, object]]:
    """The run as it is, then with each technique: bytes by formula and measured, and the time of a step."""
    variants = [MemoryVariant(config), *single_variants(config)]
    plain = try_each([config])[0] if is_measured else None
    plain_parts = formula_parts(config)
    rows: list[dict[str, object]] = []
    for variant in variants:
        name = variant.techniques[0] if variant.techniques else "plain"
        technique = TECHNIQUES.get(name)
        parts = formula_parts(variant.config) if variant.flags else plain_parts
        row: dict[str, object] = {
            "technique": name,
            "flags": variant.flags,
            "takes_away": technique.takes_away if technique else "",
            "leaves": technique.formula if technique else "",
            "is_exact": variant.is_exact,
            "formula_bytes": _sum(parts),
            "changes": _changes(plain_parts, parts),
            # Products in 16 bits need memory beside the tensors.
            "formula_is_bound": variant.config.precision in ("bf16", "fp16"),
        }
        if plain is not None:
            try:
                row |= _measured(variant, plain)
            except ConfigError as error:
                if not variant.flags:
                    raise  # the run itself is refused
                row["refused"] = error.message
        rows.append(row)
    return rows


def _measured(variant: MemoryVariant, plain: Trial) -> dict[str, object]:
    """Bytes in use, bytes at the peak, and the time of a step compared with the run as it is."""
    trial = try_each([variant.config])[0] if variant.flags else plain
    is_known = not (trial.was_delayed or plain.was_delayed)
    return {
        "in_use_bytes": _in_use(variant.config, trial),
        "measured_bytes": trial.peak,
        "time": round(trial.seconds / plain.seconds, 3) if is_known else None,
    }


def _in_use(config: RunConfig, trial: Trial) -> int:
    """Bytes in use at the peak; on a GPU torch's allocator counts nothing else."""
    if not keeps_freed_memory(config):
        return trial.peak
    return try_each([returning_freed(config)], longest_s=0.0)[0].peak


def returning_freed(config: RunConfig) -> RunConfig:
    """The same run with a C library that keeps no freed memory: its peak is what is in use."""
    return replace(config, memory=replace(config.memory, return_freed=True))


def _sum(parts: Parts | None) -> int | None:
    known = [each for each in (parts or {}).values() if each is not None]
    return sum(known) if parts and len(known) == len(parts) else None


def _changes(plain: Parts | None, parts: Parts | None) -> dict[str, int]:
    """Bytes by which each part of the formula grows (or shrinks: below zero); empty if a part is not known."""
    if plain is None or parts is None or _sum(plain) is None or _sum(parts) is None:
        return {}
    names = dict.fromkeys((*plain, *parts))
    changes = {name: (parts.get(name) or 0) - (plain.get(name) or 0) for name in names}
    return {name: change for name, change in changes.items() if change}


def formula_parts(config: RunConfig) -> Parts | None:
    """Bytes of each component of a worker by formula: 0 where it is elsewhere, None where they are not known."""
    try:
        found = by_formula(config, samples_at_once(config)).components
    except ConfigError:
        return None
    parts: Parts = {}
    for each in found:
        mine, before = each.num_bytes if each.counts else 0, parts.get(each.name, 0)
        parts[each.name] = None if mine is None or before is None else before + mine
    return parts


def bf16_bytes() -> int:
    """The most that products in 16 bits were seen to need beside the tensors: oneDNN's AMX kernels need buffers."""
    has_amx = torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]
    return (12 if has_amx else 4) * MIB


def samples_at_once(config: RunConfig) -> int:
    """Samples of a worker that go through the model at once."""
    batch = config.train.batch_size
    share = -(-batch // config.axes.get("data", 1)) if isinstance(batch, int) else config.train.micro_batch
    return min(share, config.train.micro_batch)
