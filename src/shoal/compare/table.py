"""A comparison as one table: for a terminal, a document, a spreadsheet or another program."""

import re
from collections.abc import Sequence
from typing import Any

from shoal.compare.comparison import (
    FAILED,
    INVARIANT_STEPS,
    KINDS,
    ComparedRun,
    Comparison,
    is_faster,
    same_bits,
    speed_up,
)
from shoal.compare.equality import BOUND, equals_one_machine
from shoal.compare.remark import percent, thread_count
from shoal.config.metrics import in_words
from shoal.config.schema import RunConfig
from shoal.report.findings import of_samples
from shoal.report.latex import to_latex
from shoal.words import Words

COLUMNS = (
    "run", "accuracy", "time", "samples", "all_cores", "one_core", "sent", "mapped", "one_step", "same_bits",
    "invariant",
)  # fmt: skip
"""The columns of the table, as keys of the words."""
SHORT_COLUMNS = ("run", "result", "speed", "compute", "encode", "move", "wait", "sent", "equals")
"""The columns of the short table; `encode` is there only if any run encodes."""
SHARES = ("compute", "encode", "move", "wait")
SHARES_AT = 6
"""The column of the first share, if the shares fit into the same table."""
EQUALITY_AT = COLUMNS.index("one_step")
"""The first column about equality."""


def shares_of(comparison: Comparison) -> list[str]:
    """The parts of the time that have a column: encoding only if any run encodes."""
    encodes = any(entry.shares["encode"] for entry in comparison.entries)
    return [kind for kind in SHARES if kind != "encode" or encodes]


def share_table(comparison: Comparison, words: Words) -> tuple[list[str], list[list[str]]]:
    """The parts of the time: header, and a row for each run."""
    kinds = shares_of(comparison)
    rows = [[percent(entry.shares[kind]) for kind in kinds] for entry in comparison.entries]
    return [words(f"kind.{kind}") for kind in kinds], rows


def short_table(comparison: Comparison, words: Words) -> tuple[list[str], list[list[str]]]:
    """What a reader needs first: header and rows. Speed is measured by the reference, if there is one."""
    columns = [each for each in SHORT_COLUMNS if each not in SHARES or each in shares_of(comparison)]
    named = {
        **{column: f"column.{column}" for column in ("run", "sent", "equals")},
        **{kind: f"kind.{kind}" for kind in SHARES},
        "speed": "column.speed" if comparison.reference else "column.samples",
    }
    rows: list[list[str]] = []
    result = _result_of(comparison, words)
    for number, entry in enumerate(comparison.entries):
        cells = {kind: percent(share) for kind, share in entry.shares.items()}
        equal = equals_one_machine(entry, comparison)
        cells |= {
            "run": entry.name,
            "result": result[1][number],
            "speed": f"{entry.samples_per_s:,.0f}",
            "sent": "–" if entry.sent_bytes is None else f"{entry.sent_bytes / 1e6:.1f}",
            "equals": "–" if equal is None else words(f"equals.{equal}", difference=entry.first_step or 0.0),
        }
        if comparison.reference:
            cells["speed"] = _speed_up(entry, comparison.reference, words, " ×")
        rows.append([cells[column] for column in columns])
    return [result[0] if column == "result" else words(named[column]) for column in columns], rows


def _result_of(comparison: Comparison, words: Words) -> tuple[str, list[str]]:
    """How good each run became: its accuracy; without one its first metric, or else its loss on the test set."""
    entries, metrics = comparison.entries, metric_names(comparison)
    if any(entry.accuracy is not None for entry in entries):
        return words("column.accuracy"), [_accuracy(entry) for entry in entries]
    if metrics:
        return metrics[0], [row[0] for row in metric_rows(comparison)]
    losses = [entry.run.result["test_loss"] for entry in entries]
    return words("run.test_loss"), ["–" if loss is None else f"{loss:.4f}" for loss in losses]


def numbers_in(rows: Sequence[Sequence[str]]) -> frozenset[int]:
    """The columns that hold numbers, which are aligned to the right.

    >>> numbers_in([["ddp", "1.82 ×", "yes, to 2.7e-06"], ["zero", "≈1.02 ×", "reference"]])
    frozenset({1})
    """
    columns = zip(*rows, strict=True)
    return frozenset(
        number
        for number, cells in enumerate(columns)
        if number and any(re.match(r"\D{0,2}\d", cell) for cell in cells)
    )


def short_legend(comparison: Comparison, words: Words) -> str:
    """What the columns of the short table mean, and what speed is measured by."""
    reference = comparison.reference
    columns = words("legend.short", bound=BOUND)
    if any(entry.is_crowded for entry in comparison.entries):
        columns = words("join.sentences", first=columns, last=words("legend.crowded"))
    if reference is None:
        return columns
    speed = words(
        "legend.speed",
        name=reference.name,
        how=words("described.one_process", threads=thread_count(reference.threads, words)),
        samples=reference.samples_per_s,
    )
    return words("join.sentences", first=speed, last=columns)


def legend(comparison: Comparison, words: Words) -> str:
    """What the columns mean, and how uncertain an accuracy is."""
    columns = words("legend.table", steps=INVARIANT_STEPS)
    results = [entry.run.result for entry in comparison.entries]
    known = [
        of_samples(result["test_accuracy"], result["test_samples"])
        for result in results
        if result.get("test_samples") and result["test_accuracy"] is not None
    ]
    if not known:
        return columns
    widest = max(known, key=lambda accuracy: accuracy.spread)
    accuracy = words("legend.accuracy", samples=widest.count, points=100 * widest.spread)
    return words("join.sentences", first=accuracy, last=columns)


def latex(comparison: Comparison, words: Words) -> str:
    """The short table for a paper."""
    header, rows = short_table(comparison, words)
    return to_latex(header, rows, numbers_in(rows), short_legend(comparison, words))


def full_table(comparison: Comparison, words: Words) -> tuple[list[str], list[list[str]]]:
    """All columns: header, and a row for each run."""
    rows: list[list[str]] = []
    for entry in comparison.entries:
        sent, invariant = entry.sent_bytes, _invariant(entry, comparison)
        row = [
            entry.name,
            _accuracy(entry),
            f"{entry.run.result['seconds']:.2f}",
            f"{entry.samples_per_s:,.0f}",
            _speed_up(entry, comparison.all_cores, words),
            _speed_up(entry, comparison.one_core, words),
            "–" if sent is None else f"{sent / 1e6:.1f}",
            "–" if sent is None else f"{entry.mapped_bytes / 1e6:.1f}",
            _first_step(entry, comparison.reference, words),
            _same_bits(entry, comparison, words),
            "–" if invariant is None else words(f"cell.{invariant}"),
        ]
        rows.append(row)
    return [words(f"column.{column}", bound=BOUND) for column in COLUMNS], rows


def metric_names(comparison: Comparison) -> list[str]:
    """The metrics that any of the runs measured on the test set, beside accuracy."""
    found = (entry.run.result.get("test_metrics") or {} for entry in comparison.entries)
    return list(dict.fromkeys(name for metrics in found for name in metrics))


def metric_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under the names of the metrics."""
    names = metric_names(comparison)
    found = [entry.run.result.get("test_metrics") or {} for entry in comparison.entries]
    return [[in_words(name, values[name]) if name in values else "–" for name in names] for values in found]


def _accuracy(entry: ComparedRun) -> str:
    return "–" if entry.accuracy is None else f"{100 * entry.accuracy:.2f} %"


def _speed_up(entry: ComparedRun, reference: ComparedRun | None, words: Words, unit: str = "") -> str:
    ratio = speed_up(entry, reference)
    if ratio is None or reference is None:
        return "–"
    if entry.was_delayed or reference.was_delayed:
        return words("cell.crowded" if entry.is_crowded else "cell.busy")
    undecided = entry is not reference and is_faster(entry, reference) == "undecided"
    return f"{'≈' * undecided}{ratio:.2f}{unit}"


def _first_step(entry: ComparedRun, reference: ComparedRun | None, words: Words) -> str:
    if entry is reference:
        return words("cell.reference")
    return "–" if entry.first_step is None else f"{entry.first_step:.1e}"


def _same_bits(entry: ComparedRun, comparison: Comparison, words: Words) -> str:
    """The first run with the same final weights; for that one itself, how many others have them."""
    group = _group_of(entry, comparison)
    if not group:
        return "–"
    return words.counted("other", len(group) - 1) if entry is group[0] else group[0].name


def _group_of(entry: ComparedRun, comparison: Comparison) -> list[ComparedRun]:
    """The runs that ended with the same weights; none if no other did."""
    return next((group for group in same_bits(comparison) if entry in group), [])


def _invariant(entry: ComparedRun, comparison: Comparison) -> str | None:
    """Whether its invariant steps have the bits of one process; None if that is not known."""
    reference = comparison.invariant
    if entry.invariant == FAILED:
        return FAILED
    if entry.invariant is None or reference is None:
        return None
    if entry is reference:
        return "reference"
    return "identical" if entry.invariant == reference.invariant else "differs"


def described(config: RunConfig, words: Words) -> str:
    """How a run divides the work, in a few words: `naive, 2 workers with 1 thread each, gloo`."""
    launch, threads = config.launch, config.threads
    count = thread_count(threads, words, "all_threads")
    parts = [config.strategy]
    if launch.workers == 1:
        parts += [words("described.one_process", threads=count)]
    else:
        divided = "workers" if threads else "sharing"
        parts += [words(f"described.{divided}", workers=launch.workers, threads=count)]
        group = words("described.shared_memory") if launch.group in ("auto", "shm") else launch.group
        parts += [words("described.threads") if launch.launcher == "threads" else group]
    if config.exchange.name != "all_reduce":
        parts += [words("described.exchange", exchange=_in_short(config.exchange))]
    if config.partition.name != "global":
        parts += [words("described.partition", partition=_in_short(config.partition))]
    conditions = (*launch.bottleneck, *launch.link)
    parts += [words(f"described.{condition.KIND}", condition=condition) for condition in conditions]
    parts += [words("described.balanced")] * config.train.balance
    return words("join.clause").join(parts)


def _in_short(choice: Any) -> str:
    """A choice with its main setting, as flags write it."""
    setting: str | None = getattr(choice, "SHORT", None)
    return f"{choice.name}:{getattr(choice, setting)}" if setting else choice.name


def as_data(entry: ComparedRun, comparison: Comparison, words: Words) -> dict[str, Any]:
    """A run as numbers: what `--json` prints and the table of the report has; `how` alone is in words."""
    result = entry.run.result
    return {
        "name": entry.name,
        "how": described(entry.config, words),
        "strategy": entry.config.strategy,
        "workers": entry.workers,
        **{key: result[key] for key in ("test_accuracy", "test_loss", "seconds")},
        **{f"test_{name}": (result.get("test_metrics") or {}).get(name) for name in metric_names(comparison)},
        "samples_per_s": round(entry.samples_per_s, 3),
        "speed_up_over_all_cores": _rounded(speed_up(entry, comparison.all_cores)),
        "speed_up_over_one_core": _rounded(speed_up(entry, comparison.one_core)),
        **{f"{kind}_share": round(share, 4) for kind, share in entry.shares.items()},
        "bytes_sent": entry.sent_bytes,
        "bytes_mapped": None if entry.sent_bytes is None else entry.mapped_bytes,
        "threads": entry.threads,
        "not_scheduled": entry.not_scheduled,
        "first_step_difference": entry.first_step,
        "final_difference": entry.difference,
        "equals_one_machine": equals_one_machine(entry, comparison),
        "weights_sha256": entry.sha256,
        "same_bits_as": [each.name for each in _group_of(entry, comparison) if each is not entry],
        "invariant_sha256": entry.invariant,
        "invariant_bits": _invariant(entry, comparison) or "–",
        "run": str(entry.run.folder.path),
    }


def worker_rows(entries: Sequence[ComparedRun]) -> list[list[str]]:
    """A row for each worker of each run: where its time went."""
    return [
        [
            entry.name,
            str(rank.rank),
            *(f"{100 * getattr(rank, kind):.1f} %" for kind in KINDS),
            f"{1e3 * rank.train_s / rank.steps:.2f}",
        ]
        for entry in entries
        for rank in entry.ranks
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
