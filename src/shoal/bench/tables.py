"""What a benchmark found: as a table in the columns of nccl-tests, as JSON, as CSV."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from shoal.bench.measure import Plan, Row


def load_note(num_workers: int) -> str:
    """A sentence when the machine is busy with other things, else nothing."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    notes: list[str] = []
    if load > 0.3 * cores:
        notes.append(f"the machine was loaded before the run (load {load:.1f} on {cores} cores)")
    if num_workers > cores:
        notes.append(f"{num_workers} workers share {cores} cores")
    return "; ".join(notes)


def as_table(rows: Sequence[Row], note: str = "") -> str:
    """The rows in nccl-tests' columns, one block per contender's size."""
    head = (
        f"{'size':>10} {'count':>10} {'type':>6} {'redop':>8} {'time':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>6} "
        f"{'mean':>10} {'p95':>10} {'p99':>10} {'calls':>6} {'of memory':>9}  contender"
    )
    units = (
        f"{'(B)':>10} {'(elements)':>10} {'':>6} {'':>8} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} {'':>6} "
        f"{'(us)':>10} {'(us)':>10} {'(us)':>10} {'':>6} {'speed':>9}"
    )
    lines = [f"# {line}" for line in ([f"note: {note}"] if note else [])] + [f"# {head}", f"# {units}"]
    lines += [
        f"  {row.size:>10} {row.count:>10} {row.type:>6} {row.redop:>8} {row.time_us:>10.1f} {row.algbw:>8.2f} "
        f"{row.busbw:>8.2f} {row.wrong:>6} {row.mean_us:>10.1f} {row.p95_us:>10.1f} {row.p99_us:>10.1f} "
        f"{row.calls:>6} {row.of_memory_speed:>9.2f}  {row.contender}"
        for row in rows
    ]
    return "\n".join(lines)


def as_json(rows: Sequence[Row], plan: Plan, num_workers: int, note: str = "") -> str:
    """Everything, for programs."""
    document: dict[str, Any] = {
        "operation": plan.operation,
        "workers": num_workers,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "note": note,
        "rows": [asdict(row) for row in rows],
    }
    return json.dumps(document, indent=1)


def as_csv(rows: Sequence[Row]) -> str:
    """The rows, for spreadsheets."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(asdict(rows[0])) if rows else [])
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()
