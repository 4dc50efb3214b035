"""How much each task counts: one, unless a teacher's file says otherwise.

[lab1]
adam_step = 3
zero_grad = 0.5
"""

import tomllib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError, unknown
from shoal_labs.catalogue import LABS
from shoal_labs.check.solution import checks_of

LARGEST = 1e6


def load_weights(path: Path | None, number: str) -> dict[str, float]:
    """The weight of every task of a lab."""
    weights = dict.fromkeys((task for each in checks_of(number) for task in each.tasks), 1.0)
    if path is None:
        return weights
    tables = _tables(path)
    known = [f"lab{name}" for name, lab in LABS.items() if lab.hand_out]
    for name in tables:
        if name not in known:
            raise ConfigError(f"{path}: {unknown('lab', name, known)}", "Write a table for a lab: [lab1].")
    for task, weight in tables.get(f"lab{number}", {}).items():
        if task not in weights:
            raise ConfigError(f"{path}, [lab{number}]: {unknown('task', task, weights)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not _is_weight(weight):
            raise ConfigError(
                f"{path}, [lab{number}]: {task} = {weight!r} is not a weight",
                "A weight is a number from 0 on: 0 means that the task does not count.",
            )
        weights[task] = float(weight)
    if not any(weights.values()):
        raise ConfigError(f"{path}, [lab{number}]: all weights are 0", "Give some task a weight above 0.")
    return weights


def _is_weight(number: float) -> bool:
    return isfinite(number) and 0 <= number <= LARGEST


def _tables(path: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", "Give a TOML file with --weights."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text in UTF-8", "Give a TOML file with --weights.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for name, table in read.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} is not in the table of a lab", "Begin with a line [lab1].")
    return read
