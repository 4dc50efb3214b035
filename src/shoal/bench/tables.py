"""The rows of a benchmark: as a table with the columns of nccl-tests, as JSON, as CSV."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from shoal.bench.measure import BenchPlan, Row

COLUMNS = (
    ("size", "(B)", "size", ">10"),
    ("count", "(elements)", "count", ">10"),
    ("type", "", "type", ">6"),
    ("redop", "", "redop", ">8"),
    ("time", "(us)", "time_us", ">10.1f"),
    ("algbw", "(GB/s)", "algbw", ">8.2f"),
    ("busbw", "(GB/s)", "busbw", ">8.2f"),
    ("#wrong", "", "wrong", ">6"),
    ("mean", "(us)", "mean_us", ">10.1f"),
    ("p95", "(us)", "p95_us", ">10.1f"),
    ("p99", "(us)", "p99_us", ">10.1f"),
    ("calls", "", "calls", ">6"),
    ("of memory", "speed", "of_memory_speed", ">9.2f"),
)
"""Title, unit, field of a row, and format of each column."""


def load_note(num_workers: int) -> str:
    """A sentence if the machine is busy with other things, else nothing."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    notes: list[str] = []
    if load > 0.3 * cores:
        notes.append(f"the machine was loaded before the run (load {load:.1f} on {cores} cores)")
    if num_workers > cores:
        notes.append(f"{num_workers} workers share {cores} cores")
    return "; ".join(notes)


def as_table(rows: Sequence[Row], note: str = "") -> str:
    """The rows in the columns of nccl-tests, one block per size."""
    titles, units = (
        " ".join(f"{column[at]:{column[3].partition('.')[0]}}" for column in COLUMNS) for at in (0, 1)
    )
    head = [f"# note: {note}"] * bool(note) + [f"# {titles}  contender", f"# {units}"]
    cells = [[format(getattr(row, name), form) for _, _, name, form in COLUMNS] for row in rows]
    return "\n".join(head + [f"  {' '.join(c)}  {row.contender}" for c, row in zip(cells, rows, strict=True)])


def as_json(
    rows: Sequence[Row], plan: BenchPlan, num_workers: int, note: str = "", device: str = "cpu"
) -> str:
    """Everything, for programs."""
    document: dict[str, Any] = {
        "operation": plan.operation,
        "workers": num_workers,
        "cores": os.cpu_count(),
        "device": device,
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
