"""Run folders as plain numbers: one curve per run, its closing record, its validations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.events.file import Record, read_events
from shoal.events.folder import RunFolder

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The loss of every step, and what had gone into the weights when it was measured.

    A step measures the loss of the weights it finds and updates them afterwards: the first loss belongs to no step, no
    sample and no second. So `loss[i]` is the loss *after* steps[i], samples[i] and seconds[i].
    """

    steps: Array
    samples: Array
    seconds: Array
    loss: Array

    def smoothed(self, window: int) -> Array:
        """The mean of the last `window` losses at every step, but never of more than the last quarter of all so far.

        Early in training the loss falls so fast that a full window would show where the curve was, not where it is.

        >>> Curve(*np.zeros((3, 8)), np.array([9.0, 8, 7, 6, 5, 4, 3, 2])).smoothed(2).tolist()
        [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.5]
        """
        sums = np.concatenate([[0.0], np.cumsum(self.loss)])
        ends = np.arange(1, len(self.loss) + 1)
        starts = ends - np.clip(ends // 4, 1, window)
        return (sums[ends] - sums[starts]) / (ends - starts)

    def rises(self) -> float:
        """The part of the steps after which the loss is higher than before."""
        return float(np.mean(np.diff(self.loss) > 0)) if len(self.loss) > 1 else 0.0

    def step_seconds(self) -> Array:
        """Duration of every step but the last, whose end the curve does not show."""
        return np.diff(self.seconds)


@dataclass(frozen=True)
class Run:
    """What a finished run left in its folder."""

    folder: RunFolder
    config: RunConfig
    curve: Curve
    samples: int
    """Samples that all steps went through together."""
    result: dict[str, Any]
    validations: tuple[Record, ...]


def read_run(path: Path) -> Run:
    """The run in a folder. One that was not finished has no closing record, and is refused."""
    folder = RunFolder(path)
    records = _settled(_events(folder))
    steps = [record for record in records if record["event"] == "step"]
    return Run(
        folder,
        from_tree(read_recipe(str(folder.config))),
        curve_of(steps),
        sum(record["samples"] for record in steps),
        folder.read_result(),
        tuple(record for record in records if record["event"] == "validation"),
    )


def curve_of(steps: Sequence[Record]) -> Curve:
    """The curve of step records, in their order."""
    samples = np.cumsum([0.0, *(record["samples"] for record in steps)])
    seconds = np.array([0.0, *(record["seconds"] for record in steps)])
    return Curve(
        steps=np.array([record["step"] for record in steps], dtype=np.float64),
        samples=samples[:-1],
        seconds=seconds[:-1],
        loss=np.array([record["loss"] for record in steps], dtype=np.float64),
    )


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of repeated runs, step by step, as long as the shortest of them."""
    length = min(len(curve.loss) for curve in curves)

    def mean(name: str) -> Array:
        return np.mean([getattr(curve, name)[:length] for curve in curves], axis=0)

    return Curve(mean("steps"), mean("samples"), mean("seconds"), mean("loss"))


def _events(folder: RunFolder) -> list[Record]:
    try:
        return read_events(folder.events())
    except OSError as error:
        raise ConfigError(
            f"{folder.path} is not a run folder: {folder.events().name}: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{folder.events()} is damaged: {error}") from None


def _settled(records: Sequence[Record]) -> list[Record]:
    """The records without what a resumed run did again: a start at step s undoes everything from s on."""
    settled: list[Record] = []
    for record in records:
        if record["event"] == "start":
            first = record["step"]
            settled = [
                old
                for old in settled
                if not (old["event"] == "step" and old["step"] >= first)
                and not (old["event"] == "validation" and old["step"] > first)
            ]
        settled.append(record)
    return settled
