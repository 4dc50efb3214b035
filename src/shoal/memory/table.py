"""The memory of a worker as a table of 80 columns, and as JSON."""

import json
from collections.abc import Sequence

from shoal.config.schema import RunConfig
from shoal.memory.measure import WorkerMemory
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.memory import OTHER, Component


def fullest(workers: Sequence[WorkerMemory]) -> WorkerMemory:
    """The worker with the most memory."""
    return max(workers, key=lambda worker: (worker.total, worker.formula))


def as_table(config: RunConfig, worker: WorkerMemory, is_measured: bool = True) -> str:
    """One row for each component: formula, bytes by formula, bytes measured; then the total."""
    rows = [_row("component", "formula", "MiB", "measured" if is_measured else "", "")]
    rows.append("-" * len(rows[0].rstrip()))
    counted = 0
    for each in worker.components:
        found = worker.measured.get(each.name)
        counted += (found or 0) if each.counts else 0
        rows.append(
            _row(each.name, each.formula, _mib(each.num_bytes), _mib(found) if is_measured else "", "")
        )
    if is_measured:
        rows.append(_row(OTHER, "", "", _mib(worker.total - counted), ""))
        rows.append(
            _row(
                "total",
                "",
                _formula(worker),
                _mib(worker.total),
                f"{100 * worker.difference:+.1f} %" if worker.is_complete else "",
            )
        )
    else:
        rows.append(_row("total", "", _formula(worker), "", ""))
    return "\n".join([_title(config, worker, is_measured), "", *rows, "", *_notes(worker)])


def _title(config: RunConfig, worker: WorkerMemory, is_measured: bool) -> str:
    workers = config.launch.workers
    stage = f" stage {worker.sizes.stage}" if config.sync is not None and config.sync.name == "zero" else ""
    who = f"one of {workers} workers" if workers > 1 else "one worker"
    if is_measured and workers > 1:
        who = f"rank {worker.rank}, the fullest of {workers} workers"
    return f"{config.model.name}, {config.optimizer.name}, {config.strategy}{stage}; {who}"


def _row(name: str, formula: str, num_bytes: str, measured: str, difference: str) -> str:
    return f"{name:<22}{formula:<24}{num_bytes:>10}{measured:>12}{difference:>10}".rstrip()


def _mib(num_bytes: int | None) -> str:
    """Mebibytes.

    >>> _mib(3 * 2**20), _mib(None)
    ('3.0', '–')
    """
    return "–" if num_bytes is None else f"{num_bytes / MIB:,.1f}"


def _formula(worker: WorkerMemory) -> str:
    """The total by formula; a part that is not known makes it a lower bound."""
    return ("" if worker.is_complete else "≥ ") + _mib(worker.formula)


def _notes(worker: WorkerMemory) -> list[str]:
    """What the letters stand for, and what is outside of the total."""
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
    def component(each: Component) -> dict[str, object]:
        row: dict[str, object] = {"name": each.name, "formula": each.formula, "formula_bytes": each.num_bytes}
        if is_measured:
            row["measured_bytes"] = worker.measured.get(each.name)
        return row | {"in_total": each.counts}

    found: dict[str, object] = {
        "rank": worker.rank,
        "num_params": worker.sizes.num_params,
        "components": [component(each) for each in worker.components],
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
