"""A comparison as one table: for a terminal, a document, a spreadsheet or another program."""

from collections.abc import Sequence
from typing import Any

from shoal.compare.comparison import KINDS, ComparedRun, Comparison, is_faster, same_bits, speed_up
from shoal.compare.invariant_bits import FAILED, STEPS
from shoal.compare.weights import FIRST_STEP_BOUND
from shoal.config.metrics import in_words
from shoal.config.schema import RunConfig

ONE_STEP, SAME_BITS = f"one step (≤\N{NO-BREAK SPACE}{FIRST_STEP_BOUND:.0e})", "same bits as"
INVARIANT = "invariant bits"
HEADER = (
    "run", "accuracy", "time (s)", "samples/s", "× all cores", "× one core", "sent (MB)",
    ONE_STEP, SAME_BITS, INVARIANT,
)  # fmt: skip
SHARES = ("compute", "move", "wait")
SHARES_AT = 6
"""The column of the first share, if the shares fit into the same table."""
EQUALITY_AT = HEADER.index(ONE_STEP)
"""The first column about equality."""

LEGEND = (
    "×: speed-up over one process, from the median steps; ≈: within their spread; busy: not comparable. sent: by rank "
    "0. one step (≤ its bound): largest difference from the reference after one step from the same state. reference: "
    "one process with the workers' number of threads. same bits as: identical final weights. "
    f"invariant bits: whether {STEPS} steps with --reduction invariant give the weights of the reference."
)
SHARES_LEGEND = "compute, move, wait: parts of the training time, means over the workers."


def metric_names(comparison: Comparison) -> list[str]:
    """The metrics that any of the runs measured on the test set, beside accuracy."""
    found = (entry.run.result.get("test_metrics") or {} for entry in comparison.entries)
    return list(dict.fromkeys(name for metrics in found for name in metrics))


def metric_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under the names of the metrics."""
    names = metric_names(comparison)
    return [[_metric(entry, name) for name in names] for entry in comparison.entries]


def _metric(entry: ComparedRun, name: str) -> str:
    values = entry.run.result.get("test_metrics") or {}
    return in_words(name, values[name]) if name in values else "–"


def table_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under HEADER."""
    return [_row(entry, comparison) for entry in comparison.entries]


def share_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each run, under SHARES."""
    return [[f"{100 * entry.shares[kind]:.0f} %" for kind in SHARES] for entry in comparison.entries]


def _row(entry: ComparedRun, comparison: Comparison) -> list[str]:
    result = entry.run.result
    return [
        entry.name,
        "–" if entry.accuracy is None else f"{100 * entry.accuracy:.2f} %",
        f"{result['seconds']:.2f}",
        f"{entry.samples_per_s:,.0f}",
        _speed_up(entry, comparison.all_cores),
        _speed_up(entry, comparison.one_core),
        f"{result['bytes_sent'] / 1e6:.1f}",
        _first_step(entry, comparison.reference),
        _same_bits(entry, comparison),
        _invariant(entry, comparison),
    ]


def _speed_up(entry: ComparedRun, reference: ComparedRun | None) -> str:
    ratio = speed_up(entry, reference)
    if ratio is None or reference is None:
        return "–"
    if entry.was_delayed or reference.was_delayed:
        return "busy"
    undecided = entry is not reference and is_faster(entry, reference) == "undecided"
    return f"{'≈ ' * undecided}{ratio:.2f}"


def _first_step(entry: ComparedRun, reference: ComparedRun | None) -> str:
    if entry is reference:
        return "reference"
    return "–" if entry.first_step is None else f"{entry.first_step:.1e}"


def _same_bits(entry: ComparedRun, comparison: Comparison) -> str:
    """The first run with the same final weights; for that one itself, how many others have them."""
    group = next((group for group in same_bits(comparison) if entry in group), [])
    if not group:
        return "–"
    if entry is not group[0]:
        return group[0].name
    others = len(group) - 1
    return f"{others} other{'s' * (others > 1)}"


def _invariant(entry: ComparedRun, comparison: Comparison) -> str:
    """Whether its invariant steps have the bits of one process."""
    reference = comparison.invariant
    if entry.invariant == FAILED:
        return FAILED
    if entry.invariant is None or reference is None:
        return "–"
    if entry is reference:
        return "reference"
    return "identical" if entry.invariant == reference.invariant else "differs"


def described(config: RunConfig) -> str:
    """How a run divides the work, in a few words.

    >>> from shoal.config.read import read
    >>> described(read(None, ["--strategy", "naive", "--workers", "2", "--group", "gloo", "--threads", "1"]))
    'naive, 2 workers with 1 thread each, gloo'
    >>> described(read(None, ["--strategy", "ddp", "--workers", "3", "--exchange", "by:ring"]))
    'ddp, 3 workers sharing the cores, shared memory, exchange by:ring'
    """
    launch, threads = config.launch, config.threads
    count = "all threads" if threads is None else f"{threads} thread{'s' * (threads > 1)}"
    words = [config.strategy]
    if launch.workers == 1:
        words += [f"1 process with {count}"]
    else:
        words += [f"{launch.workers} workers {f'with {count} each' if threads else 'sharing the cores'}"]
        group = "shared memory" if launch.group in ("auto", "shm") else launch.group
        words += ["threads of one process" if launch.launcher == "threads" else group]
    words += [f"exchange {_in_short(config.exchange)}"] * (config.exchange.name != "all_reduce")
    words += [f"partition {_in_short(config.partition)}"] * (config.partition.name != "global")
    words += [f"{condition.KIND} {condition}" for condition in (*launch.bottleneck, *launch.link)]
    words += ["balanced"] * config.train.balance
    return ", ".join(words)


def _in_short(choice: Any) -> str:
    """A choice with its main setting, as flags write it."""
    setting: str | None = getattr(choice, "SHORT", None)
    return f"{choice.name}:{getattr(choice, setting)}" if setting else choice.name


def as_data(entry: ComparedRun, comparison: Comparison) -> dict[str, Any]:
    """A run as numbers: what `--json` prints and the table of the report holds."""
    result = entry.run.result
    return {
        "name": entry.name,
        "how": described(entry.config),
        "strategy": entry.config.strategy,
        "workers": entry.workers,
        **{key: result[key] for key in ("test_accuracy", "test_loss", "seconds")},
        **{f"test_{name}": (result.get("test_metrics") or {}).get(name) for name in metric_names(comparison)},
        "samples_per_s": round(entry.samples_per_s, 3),
        "speed_up_over_all_cores": _rounded(speed_up(entry, comparison.all_cores)),
        "speed_up_over_one_core": _rounded(speed_up(entry, comparison.one_core)),
        **{f"{kind}_share": round(share, 4) for kind, share in entry.shares.items()},
        "bytes_sent": result["bytes_sent"],
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
        "invariant_bits": _invariant(entry, comparison),
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
