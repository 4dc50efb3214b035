"""Rows of a table: the runs of one variant with several seeds, their means with 95 % intervals, and their differences.

Runs with the same seed start from the same weights and take the same batches, so two rows are compared seed by seed:
luck falls on both. What is best of a sweep is decided on the validation set alone; the test set shows the result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from shoal.compare.comparison import ComparedRun, compare
from shoal.report.student import Interval, interval_of

Verdict = Literal["reference", "better", "worse", "same", "undecided", "unknown"]
"""Of a row, against the reference: `same` has equal values for every seed, `unknown` no seed in common."""


@dataclass(frozen=True)
class Place:
    """Where a run stands in the table."""

    row: str
    swept_from: str


@dataclass(frozen=True)
class Failed:
    """A row without numbers, because a run of it failed: the mean of the others would count only the lucky seeds."""

    name: str
    swept_from: str
    run: str
    """The first run that failed."""
    reason: str


@dataclass(frozen=True)
class Measure:
    """The number that says how good a run became."""

    key: Literal["accuracy", "loss"]

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.key == "accuracy" else -1

    @property
    def factor(self) -> float:
        """Accuracies are shown in per cent."""
        return 100.0 if self.key == "accuracy" else 1.0

    @property
    def spec(self) -> str:
        """The format of a number."""
        return ".2f" if self.key == "accuracy" else ".4f"

    def of(self, run: ComparedRun, split: Literal["validation", "test"]) -> float | None:
        """The value of a run on a part of the data, in the unit that is shown; None if it was not measured."""
        value = run.run.result.get(f"{split}_{self.key}")
        return None if value is None else self.factor * value


@dataclass(frozen=True)
class Row:
    """One variant with one choice of settings, and its runs by seed."""

    name: str
    swept_from: str
    """The variant whose settings a sweep has changed; empty if none has."""
    runs: tuple[ComparedRun, ...]
    measure: Measure

    def over_seeds(self, value: Callable[[ComparedRun], float | None]) -> Interval | None:
        """The mean over the seeds; None if a run has no such value."""
        values = [found for run in self.runs if (found := value(run)) is not None]
        return interval_of(values) if len(values) == len(self.runs) else None

    def result(self, split: Literal["validation", "test"]) -> Interval | None:
        """How good its runs became on a part of the data."""
        return self.over_seeds(lambda run: self.measure.of(run, split))

    @property
    def seconds(self) -> Interval:
        """The training time."""
        return interval_of([run.run.result["seconds"] for run in self.runs])

    @property
    def sent_bytes(self) -> float | None:
        """Bytes that left a worker; None if an older version counted them otherwise."""
        sent = [run.sent_bytes for run in self.runs if run.sent_bytes is not None]
        return fmean(sent) if len(sent) == len(self.runs) else None

    @property
    def was_delayed(self) -> bool:
        """Whether the machine was too busy for the times of a run to mean anything."""
        return any(run.was_delayed for run in self.runs)


@dataclass(frozen=True)
class Rows:
    """All rows, and the one that the others are compared with."""

    rows: tuple[Row, ...]
    reference: Row
    tuned: tuple[Row, ...]
    """Of each variant that was swept, the row with the best mean on the validation set."""
    failed: tuple[Failed, ...] = ()

    @property
    def measure(self) -> Measure:
        """What says how good a run became."""
        return self.reference.measure

    @property
    def seeds(self) -> int:
        """The largest number of seeds of a row."""
        return max(len(row.runs) for row in self.rows)

    @property
    def split(self) -> Literal["validation", "test"]:
        """The part of the data on which differences are shown."""
        return "test" if all(row.result("test") for row in self.rows) else "validation"

    def difference(self, row: Row) -> Interval | None:
        """The row less the reference, seed by seed; None for the reference and where no seed is in both."""
        theirs = {run.config.seed: self.measure.of(run, self.split) for run in self.reference.runs}
        pairs = [(self.measure.of(run, self.split), theirs.get(run.config.seed)) for run in row.runs]
        apart = [ours - other for ours, other in pairs if ours is not None and other is not None]
        return interval_of(apart) if apart and row is not self.reference else None

    def verdict(self, row: Row) -> Verdict:
        """Whether the row is better than the reference; undecided if the interval of the difference holds zero."""
        if row is self.reference:
            return "reference"
        difference = self.difference(row)
        if difference is None:
            return "unknown"
        if difference.half == 0 == difference.mean:
            return "same"
        if difference.holds_zero:
            return "undecided"
        return "better" if difference.mean * self.measure.sign > 0 else "worse"


def rows_of(
    folders: Sequence[Path], places: Mapping[str, Place], reasons: Mapping[str, str] | None = None
) -> Rows:
    """The rows of finished runs, whose folders have a place each, by name; why others failed is in `reasons`."""
    failed = tuple(_failed(places, reasons or {}))
    without = {each.name for each in failed}
    comparison = compare([path for path in folders if _shown(places[path.name].row) not in without])
    entries = comparison.entries
    measure = Measure("accuracy" if all(map(_has_accuracy, entries)) else "loss")
    found: dict[str, list[ComparedRun]] = {}
    for entry in entries:
        found.setdefault(places[entry.name].row, []).append(entry)
    rows = [Row(_shown(name), places[name].swept_from, tuple(runs), measure) for name, runs in found.items()]
    tuned = [
        best
        for family in dict.fromkeys(row.swept_from for row in rows)
        if (best := _best(family, rows, any(each.swept_from == family for each in failed)))
    ]
    first = next((row for row in rows if comparison.reference in row.runs), rows[0])
    chosen = (row for row in tuned if row.swept_from == first.swept_from)
    return Rows(tuple(rows), next(chosen, first), tuple(tuned), failed)


def _shown(row: str) -> str:
    return row.replace(",", " ")


def _failed(places: Mapping[str, Place], reasons: Mapping[str, str]) -> Iterator[Failed]:
    """A row for each first run that failed."""
    firsts: dict[str, str] = {}
    for run in reasons:
        firsts.setdefault(places[run].row, run)
    for row, run in firsts.items():
        yield Failed(_shown(row), places[run].swept_from, run, reasons[run])


def _has_accuracy(entry: ComparedRun) -> bool:
    return any(entry.run.result.get(f"{split}_accuracy") is not None for split in ("validation", "test"))


def _best(family: str, rows: Sequence[Row], others_failed: bool) -> Row | None:
    """The best row of a swept variant on the validation set; None without one, and without a choice."""
    of_family = [row for row in rows if family and row.swept_from == family]
    means = [(row, result.mean) for row in of_family if (result := row.result("validation"))]
    if len(of_family) + others_failed < 2 or not means or len(means) < len(of_family):
        return None
    return max(means, key=lambda pair: pair[0].measure.sign * pair[1])[0]


def as_data(row: Row, rows: Rows) -> dict[str, Any]:
    """A row as numbers: what `--json` prints and the table of the report has. Accuracies are fractions here."""
    key, factor = row.measure.key, 1 / row.measure.factor

    def columns(name: str, interval: Interval | None) -> dict[str, float | None]:
        return {
            name: interval and interval.mean,
            f"{name}_half": interval and interval.half,
        }

    validation, test, difference = row.result("validation"), row.result("test"), rows.difference(row)
    return {
        "name": row.name,
        "variant": row.swept_from or row.name,
        "tuned": row in rows.tuned,
        "seeds": len(row.runs),
        **columns(f"validation_{key}", validation and validation.scaled(factor)),
        **columns(f"test_{key}", test and test.scaled(factor)),
        **columns(f"{rows.split}_{key}_difference", difference and difference.scaled(factor)),
        "verdict": rows.verdict(row),
        **columns("seconds", row.seconds),
        "bytes_sent": row.sent_bytes,
        "delayed": row.was_delayed,
    }
