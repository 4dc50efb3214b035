"""A comparison as one table: for a terminal, a document, a spreadsheet or another program."""

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
from shoal.compare.weight_difference import FIRST_STEP_BOUND
from shoal.config.metrics import in_words
from shoal.config.schema import RunConfig
from shoal.report.findings import of_samples
from shoal.words import Words

COLUMNS = (
    "run", "accuracy", "time", "samples", "all_cores", "one_core", "sent", "mapped", "one_step", "same_bits",
    "invariant",
)  # fmt: skip
"""The columns of the table, as keys of the words."""
SHARES = ("compute", "encode", "move", "wait")
SHARES_AT = 6
"""The column of the first share, if the shares fit into the same table."""
EQUALITY_AT = COLUMNS.index("one_step")
"""The first column about equality."""


def header(words: Words) -> list[str]:
    """The names of the columns."""
    bound = f"{FIRST_STEP_BOUND:.0e}"
    return [words(f"column.{column}", bound=bound) for column in COLUMNS]


def shares_of(comparison: Comparison) -> list[str]:
    """The parts of the time that have a column: encoding only if any run encodes."""
    encodes = any(entry.shares["encode"] for entry in comparison.entries)
    return [kind for kind in SHARES if kind != "encode" or encodes]


def share_header(comparison: Comparison, words: Words) -> list[str]:
    """The names of the columns with parts of the time."""
    return [words(f"kind.{kind}") for kind in shares_of(comparison)]


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


def table_rows(comparison: Comparison, words: Words) -> list[list[str]]:
    """A row for each run, under the header."""
    return [_row(entry, comparison, words) for entry in comparison.entries]


def metric_names(comparison: Comparison) -> list[str]:
    """The metrics that any of the runs measured on the test set, beside accuracy."""
    found = (entry.run.result.get("test_metrics") or {} for entry in comparison.entries)
    return list(dict.fromkeys(name for metrics in found for name in metrics))


def metric_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under the names of the metrics."""
    names = metric_names(comparison)
    found = [entry.run.result.get("test_metrics") or {} for entry in comparison.entries]
    return [[in_words(name, values[name]) if name in values else "–" for name in names] for values in found]


def share_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under the share header."""
    kinds = shares_of(comparison)
    return [[f"{100 * entry.shares[kind]:.0f} %" for kind in kinds] for entry in comparison.entries]


def _row(entry: ComparedRun, comparison: Comparison, words: Words) -> list[str]:
    result, invariant = entry.run.result, _invariant(entry, comparison)
    return [
        entry.name,
        "–" if entry.accuracy is None else f"{100 * entry.accuracy:.2f} %",
        f"{result['seconds']:.2f}",
        f"{entry.samples_per_s:,.0f}",
        _speed_up(entry, comparison.all_cores, words),
        _speed_up(entry, comparison.one_core, words),
        "–" if entry.sent_bytes is None else f"{entry.sent_bytes / 1e6:.1f}",
        "–" if entry.sent_bytes is None else f"{entry.mapped_bytes / 1e6:.1f}",
        _first_step(entry, comparison.reference, words),
        _same_bits(entry, comparison, words),
        "–" if invariant is None else words(f"cell.{invariant}"),
    ]


def _speed_up(entry: ComparedRun, reference: ComparedRun | None, words: Words) -> str:
    ratio = speed_up(entry, reference)
    if ratio is None or reference is None:
        return "–"
    if entry.was_delayed or reference.was_delayed:
        return words("cell.busy")
    undecided = entry is not reference and is_faster(entry, reference) == "undecided"
    return f"{'≈ ' * undecided}{ratio:.2f}"


def _first_step(entry: ComparedRun, reference: ComparedRun | None, words: Words) -> str:
    if entry is reference:
        return words("cell.reference")
    return "–" if entry.first_step is None else f"{entry.first_step:.1e}"


def _same_bits(entry: ComparedRun, comparison: Comparison, words: Words) -> str:
    """The first run with the same final weights; for that one itself, how many others have them."""
    group = next((group for group in same_bits(comparison) if entry in group), [])
    if not group:
        return "–"
    if entry is not group[0]:
        return group[0].name
    return words.counted("other", len(group) - 1)


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
    count = words("count.all_threads") if threads is None else words.counted("thread", threads)
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
        "weights_sha256": entry.sha256,
        "same_bits_as": [
            other.name
            for group in same_bits(comparison)
            if entry in group
            for other in group
            if other is not entry
        ],
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
