"""The memory of a worker, and the techniques that need less, as tables of 80 columns and as JSON."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.config.schema import RunConfig
from shoal.memory.measure import WorkerMemory
from shoal.memory.techniques import FREED, bf16_bytes, samples_at_once
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.memory import OTHER

VISIBLE = MIB // 10
"""The smallest difference that a table shows: a tenth of a MiB."""


def fullest(workers: Sequence[WorkerMemory]) -> WorkerMemory:
    """The worker with the most memory."""
    return max(workers, key=lambda worker: (worker.total, worker.formula))


def as_table(config: RunConfig, worker: WorkerMemory, is_measured: bool = True) -> str:
    """One row for each component: formula, bytes by formula, bytes measured; then the total."""
    rows = [_row("component", "formula", "MiB", "measured" if is_measured else "")]
    rows.append("-" * len(rows[0].rstrip()))
    counted = 0
    for each in worker.components:
        found = worker.measured.get(each.name)
        counted += (found or 0) if each.counts else 0
        rows.append(_row(each.name, each.formula, _mib(each.num_bytes), _mib(found) if is_measured else ""))
    # A part that is not known makes the total by formula a lower bound.
    total = ("" if worker.is_complete else "≥ ") + _mib(worker.formula)
    if is_measured:
        difference = f"{100 * worker.difference:+.1f} %" if worker.is_complete else ""
        rows.append(_row(OTHER, "", "", _mib(worker.total - counted)))
        rows.append(_row("total", "", total, _mib(worker.total), difference))
    else:
        rows.append(_row("total", "", total))
    return "\n".join([_title(config, worker, is_measured), "", *rows, "", *_notes(worker)])


def _title(config: RunConfig, worker: WorkerMemory, is_measured: bool) -> str:
    workers = config.launch.workers
    stage = f" stage {worker.sizes.stage}" if config.sync is not None and config.sync.name == "zero" else ""
    who = f"one of {workers} workers" if workers > 1 else "one worker"
    if is_measured and workers > 1:
        who = f"rank {worker.rank}, the fullest of {workers} workers"
    return f"{config.model.name}, {config.optimizer.name}, {config.strategy}{stage}; {who}"


def _row(name: str, formula: str, num_bytes: str, measured: str = "", difference: str = "") -> str:
    return f"{name:<22}{formula:<24}{num_bytes:>10}{measured:>12}{difference:>10}".rstrip()


def _mib(num_bytes: object) -> str:
    """Mebibytes.

    >>> _mib(3 * 2**20), _mib(None)
    ('3.0', '–')
    """
    return f"{num_bytes / MIB:,.1f}" if isinstance(num_bytes, int) else "–"


def _notes(worker: WorkerMemory) -> list[str]:
    """The meaning of the letters, and memory outside of the total."""
    sizes, formulas = worker.sizes, " ".join(each.formula for each in worker.components)
    names = {
        "Ψ": f"{sizes.num_params:,} parameters",
        "N": f"{sizes.workers} workers",
        "U": f"{_mib(sizes.unit)} MiB, the largest unit",
        "G": f"{_mib(sizes.largest)} MiB, "
        + (
            "all gradients"
            if sizes.largest == sizes.weights
            else "the largest gradient that is copied, and those below 256 KiB"
        ),
        "B": f"{_mib(sizes.updated_in_backward)} MiB, the largest bucket of gradients",
        "S": f"{_mib(sizes.slots)} MiB of slots",
        "fixed": f"{_mib(sizes.fixed)} MiB of buffers and frozen parameters",
    }
    notes = [f"{name} = {meaning}" for name, meaning in names.items() if name in formulas]
    if worker.kept >= MIB:
        notes.append(f"The C library keeps {_mib(worker.kept)} MiB more: freed, and ready for use.")
    if any(not each.counts for each in worker.components):
        notes.append("What is off-loaded is not counted in the total.")
    return notes


def as_json(
    config: RunConfig,
    workers: Sequence[WorkerMemory],
    is_measured: bool = True,
    techniques: Sequence[dict[str, object]] = (),
) -> str:
    """One line of JSON, with every worker."""
    return json.dumps(
        {
            "model": config.model.name,
            "optimizer": config.optimizer.name,
            "strategy": config.strategy,
            "workers": config.launch.workers,
            "fullest": fullest(workers).rank,
            "by_worker": [_as_data(worker, is_measured) for worker in workers],
            "techniques": list(techniques),
        }
    )


def _as_data(worker: WorkerMemory, is_measured: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "rank": worker.rank,
        "num_params": worker.sizes.num_params,
        "components": [
            {"name": each.name, "formula": each.formula, "formula_bytes": each.num_bytes}
            | ({"measured_bytes": worker.measured.get(each.name)} if is_measured else {})
            | {"in_total": each.counts}
            for each in worker.components
        ],
        "formula_bytes": worker.formula,
        "formula_is_complete": worker.is_complete,
    }
    if is_measured:
        found |= {
            "measured_bytes": worker.total,
            "difference": round(worker.difference, 4) if worker.is_complete else None,
            "kept_by_allocator_bytes": worker.kept,
        }
    return found


def techniques_as_text(config: RunConfig, rows: Sequence[dict[str, object]]) -> str:
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
        lines.append(f"≥: products in 16 bits need up to {_mib(bf16_bytes())} MiB beside the tensors")
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
        lines.append("* computes something else: see docs/en/memory.md")
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
