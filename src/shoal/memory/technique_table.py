"""The techniques for less memory as a table: bytes by formula, bytes measured, and the time of a step.

The peak is that of the process, with what the C library keeps although it was freed. Such variants are measured twice:
what is in use at the peak, which the formula predicts, in workers whose C library keeps nothing large.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.memory.measure import by_formula
from shoal.memory.techniques import FREED, TECHNIQUES, MemoryVariant, keeps_freed_memory, single_variants
from shoal.memory.trial import Trial, try_each
from shoal.strategies.buckets.plan import MIB

VISIBLE = MIB // 10
"""What the table shows: tenths of a MiB."""
Parts = dict[str, int | None]
"""Bytes of each component; None: not known."""


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
            # Products in bfloat16 need memory beside the tensors.
            "formula_is_bound": variant.config.precision == "bf16",
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


def formula_bytes(config: RunConfig) -> int | None:
    """Bytes of a worker by formula, for the samples that go through the model at once; None if a part is not known."""
    return _sum(formula_parts(config))


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
    """The most that products in bfloat16 were seen to need beside the tensors: oneDNN's AMX kernels need buffers."""
    has_amx = torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]
    return (12 if has_amx else 4) * MIB


def samples_at_once(config: RunConfig) -> int:
    """Samples of a worker that go through the model at once."""
    batch = config.train.batch_size
    share = -(-batch // config.axes.get("data", 1)) if isinstance(batch, int) else config.train.micro_batch
    return min(share, config.train.micro_batch)


def as_text(config: RunConfig, rows: Sequence[dict[str, object]]) -> str:
    """The rows as a table of 80 columns."""
    lines = [f"Techniques, with {samples_at_once(config)} samples at once", ""]
    is_measured = any("time" in row for row in rows)
    header = f"{'MiB':<28}{'takes away':<16}{'formula':>9}"
    header += f"{'in use':>9}{'peak':>9}{'time':>9}" if is_measured else ""
    lines += [header, "-" * len(header)]
    for row in rows:
        label = str(row["flags"] or row["technique"]) + (" *" if not row["is_exact"] else "")
        time = "" if "time" not in row else "busy" if row["time"] is None else f"{row['time']:.2f} ×"
        measured = (
            f"{_mib(row[name]):>9}" if name in row else "" for name in ("in_use_bytes", "measured_bytes")
        )
        bound = "≥ " if row["formula_is_bound"] and row["formula_bytes"] is not None else ""
        formula = f"{bound + _mib(row['formula_bytes']):>9}"
        lines.append(f"{label:<28}{row['takes_away']!s:<16}{formula}{''.join(measured)}{time:>9}".rstrip())
    lines += [""]
    if any(row["formula_is_bound"] for row in rows):
        lines.append(f"≥: products in bfloat16 need up to {_mib(bf16_bytes())} MiB beside the tensors")
    if any(row["formula_bytes"] is None for row in rows):
        lines.append("–: a part of it is not known without running the model")
    if is_measured:
        lines.append("peak: what is in use, and what the C library keeps of freed memory")
    if any(row.get("time", 1.0) is None for row in rows):
        lines.append("busy: other programs delayed every step, so the time is not comparable")
    for row in rows[1:]:
        if sentence := _why_no_saving(rows[0], row):
            lines += textwrap.wrap(sentence, 80)
    for row in rows:
        if "refused" in row:
            lines += textwrap.wrap(f"{row['flags']} was not measured: {row['refused']}", 80)
    if any(not row["is_exact"] for row in rows):
        lines.append("* computes something else: see docs/memory.md")
    return "\n".join(lines).rstrip()


def _why_no_saving(plain: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Why a technique does not need less than the plain run, from the parts of the formula; empty if it does."""
    # No formula counts freed memory: the column of the peak shows what that technique saves.
    if row["takes_away"] == FREED:
        return ""
    before, after = plain["formula_bytes"], row["formula_bytes"]
    if before is None or after is None or after < before:
        return _why_more_in_use(plain, row)
    more = f"needs {_size(after - before)} more" if after > before else "saves nothing"
    parts = sorted(row["changes"].items(), key=lambda each: -each[1])
    changes = [
        f"{_size(abs(change))} {'more' if change > 0 else 'less'} for {name}" for name, change in parts
    ]
    why = ", ".join(changes) or f"at the peak of a step its {row['takes_away']} are as large as without it"
    return f"{row['flags']} {more} by formula: {why}."


def _why_more_in_use(plain: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The same where the formula has a saving, or is not known, and workers have more in use."""
    more = row.get("in_use_bytes", 0) - plain.get("in_use_bytes", 0)
    if more < VISIBLE:
        return ""
    change = sum(row["changes"].values())
    why = f"{_size(-change)} less by formula, {_size(more - change)} more that no formula counts"
    return f"{row['flags']} has {_size(more)} more in use: {why if change else 'a part of its formula is not known'}."


def _size(num_bytes: int) -> str:
    """A small number of bytes, not as 0.0 MiB.

    >>> _size(3 * 2**20), _size(20_000)
    ('3.0 MiB', '20 KiB')
    """
    return f"{_mib(num_bytes)} MiB" if num_bytes >= VISIBLE else f"{num_bytes / 1024:,.0f} KiB"


def _mib(num_bytes: object) -> str:
    return f"{num_bytes / MIB:,.1f}" if isinstance(num_bytes, int) else "–"
