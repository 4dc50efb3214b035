"""A table of all runs in a folder: what each trained, how, and how it ended; filtered and sorted."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shoal.config.kinds import parse
from shoal.config.metrics import in_words
from shoal.config.read import from_tree, read_recipe
from shoal.config.write import flat
from shoal.errors import ConfigError, ShoalError, unknown
from shoal.events.file import check_events
from shoal.events.folder import RunFolder

COLUMNS = (
    "run", "model", "data", "optimizer", "strategy", "workers", "status", "steps", "accuracy", "loss", "seconds",
)  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True)
class ListedRun:
    """One run."""

    path: Path
    values: Mapping[str, Any]
    """By column, by the path of a setting (`optimizer.lr`) and by the name of a result (`bytes_sent`)."""
    began: datetime


def listed_runs(folder: Path, newest: int | None = None) -> tuple[list[ListedRun], list[str]]:
    """The runs in a folder, or the newest of them, the latest last; and what is wrong with those that are damaged."""
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}", "Runs are in runs/, unless --runs-dir says something else.")
    runs, damaged = list[ListedRun](), list[str]()
    paths = [
        path for path in folder.iterdir() if RunFolder(path).config.exists() and not path.match(".*.tmp")
    ]
    for path in sorted(paths, key=_began, reverse=True)[:newest]:
        try:
            runs.append(_listed(path))
        except ShoalError as error:
            damaged.append(error.message if str(path) in error.message else f"{path}: {error.message}")
    return sorted(runs, key=lambda run: run.began), damaged


def _listed(path: Path) -> ListedRun:
    folder = RunFolder(path)
    config = from_tree(read_recipe(str(folder.config)))
    result = folder.read_result() if folder.result.exists() else {}
    check_events(folder, result)
    columns = {
        "run": path.name,
        "model": config.model.name,
        "data": config.data.name,
        "optimizer": config.optimizer.name,
        "strategy": config.strategy,
        "workers": config.launch.workers,
        "status": result.get("status", "unfinished"),
        "steps": result.get("steps"),
        "accuracy": result.get("test_accuracy"),
        "loss": result.get("test_loss"),
        "seconds": result.get("seconds"),
        "checked": bool(folder.run_id),
    }
    began = datetime.fromtimestamp(_began(path))
    metrics = dict[str, float](result.get("test_metrics") or {})
    metrics |= {
        f"validation_{name}": value for name, value in (result.get("validation_metrics") or {}).items()
    }
    best = {f"best_{name}": value for name, value in (result.get("best") or {}).items()}
    return ListedRun(path, metrics | flat(config) | result | best | columns, began)


def _began(path: Path) -> float:
    return RunFolder(path).config.stat().st_mtime


def matching(runs: Sequence[ListedRun], condition: str) -> list[ListedRun]:
    """The runs that satisfy a condition: `strategy=ddp`, `accuracy>0.9`, `optimizer.lr<=0.01`."""
    found = re.fullmatch(r"([\w.]+)\s*(!=|<=|>=|=|<|>)\s*(.*)", condition)
    if found is None:
        raise ConfigError(
            f"expected a condition NAME=VALUE, got '{condition}'",
            "Comparisons: = != < > <= >=. Quote < and >.",
        )
    name, sign, text = found.groups()
    _check_name(runs, name)
    is_text = any(isinstance(run.values.get(name), str) for run in runs)
    if sign not in ("=", "!=") and not is_text and _number(text) is None:
        raise ConfigError(
            f"condition '{condition}': expected a number after {sign}, got '{text}'",
            f'Write for example "{name}{sign}0.9".',
        )
    return [run for run in runs if _holds(run.values.get(name), sign, text)]


def ordered(runs: Sequence[ListedRun], name: str) -> list[ListedRun]:
    """The runs by a value, the smallest first; those without one come last."""
    _check_name(runs, name)

    def key(run: ListedRun) -> tuple[bool, bool, Any]:
        value = run.values.get(name)
        is_number = isinstance(value, int | float)
        return value is None, not is_number, value if is_number else str(value)

    return sorted(runs, key=key)


def _holds(value: Any, sign: str, text: str) -> bool:
    if value is None:
        return sign == "!="
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = _number(text)
        return sign == "!=" if number is None else COMPARISONS[sign](value, number)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return COMPARISONS[sign](shown, text)


def _number(text: str) -> float | None:
    """The number that a text is, if it is one."""
    number = parse(float, text)
    return number if isinstance(number, float) and not math.isnan(number) else None


def _check_name(runs: Sequence[ListedRun], name: str) -> None:
    known = {key for run in runs for key in run.values}
    if runs and name not in known:
        raise ConfigError(unknown("column", name, known))


def metrics_of(runs: Sequence[ListedRun]) -> list[str]:
    """The names of the metrics that any of the runs measured on its test set: a column for each."""
    return list(dict.fromkeys(name for run in runs for name in run.values.get("test_metrics") or {}))


def row_of(run: ListedRun, metrics: Sequence[str] = ()) -> list[str]:
    """The cells of a run's row, each with its unit; those of `metrics` come last."""
    values = run.values
    accuracy, loss, seconds = values["accuracy"], values["loss"], values["seconds"]
    last = [
        "–" if accuracy is None else f"{100 * accuracy:.2f} %",
        "–" if loss is None else f"{loss:.4f}",
        "–" if seconds is None else f"{seconds:.1f} s",
    ]
    first = ["–" if values[column] is None else str(values[column]) for column in COLUMNS[:-3]]
    if not values["checked"]:
        first[COLUMNS.index("status")] += ", unchecked"
    measured: Mapping[str, float] = values.get("test_metrics") or {}
    more = [in_words(name, measured[name]) if name in measured else "–" for name in metrics]
    return [f"{run.began:%Y-%m-%d %H:%M}", *first, *last, *more]
