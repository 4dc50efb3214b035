"""Run folders as plain numbers: the loss curve, the result and the validations of each run."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.errors import ShoalError
from shoal.events.file import Record, check_events, read_events
from shoal.events.folder import RunFolder
from shoal.events.steps import settled
from shoal.report.step_index import read_index

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The loss of every step, and the training that the weights had when it was measured.

    A step measures the loss first and updates the weights afterwards, so the first loss is the loss after 0 steps, 0
    samples and 0 seconds. In general `loss[i]` is the loss *after* steps[i], samples[i] and seconds[i].
    """

    steps: Array
    samples: Array
    seconds: Array
    loss: Array

    def smoothed(self, window: int) -> Array:
        """The mean of the last `window` losses at every step, but of at most the last quarter of the losses so far.

        Early in training the loss falls fast, and the mean over a full window would lag behind it.

        >>> Curve(*np.zeros((3, 8)), np.array([9.0, 8, 7, 6, 5, 4, 3, 2])).smoothed(2).tolist()
        [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.5]
        """
        sums = np.concatenate([[0.0], np.cumsum(self.loss)])
        ends = np.arange(1, len(self.loss) + 1)
        starts = ends - np.clip(ends // 4, 1, window)
        return (sums[ends] - sums[starts]) / (ends - starts)

    def rises(self) -> float:
        """The fraction of the steps after which the loss is higher than before."""
        return float(np.mean(np.diff(self.loss) > 0)) if len(self.loss) > 1 else 0.0

    def step_seconds(self) -> Array:
        """The duration of every step except the last, whose end the curve does not show."""
        return np.diff(self.seconds)


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    folder: RunFolder
    config: RunConfig
    curve: Curve
    samples: int
    """Samples of all steps together."""
    result: dict[str, Any]
    validations: tuple[Record, ...]
    rates: Array
    """The learning rate of every step; empty in runs of older versions."""


def read_run(path: Path) -> Run:
    """Read the run in a folder; an error if it did not finish, or if its result or its events are damaged."""
    folder = RunFolder(path)
    if folder.is_profile:
        return _read_profile(folder)
    with naming_damage(folder):
        index = read_index(0, folder.events())
        table = index.table
        if index.problem or np.isnan(table[:, 4:6]).any():
            read_events(folder.events())  # names the damage
            raise folder.damaged(index.problem or f"{folder.events().name} has steps without samples or loss")
        config, result = from_tree(read_recipe(str(folder.config))), folder.read_result()
        check_events(folder, result)
        # Workers of a parameter server record only the steps of which they had a share.
        has_all = result.get("server") or table[:, 0].tolist() == [*range(result["steps"])]
        if folder.run_id and not has_all:
            raise folder.damaged(f"{folder.events().name} does not have all {result['steps']} steps")
        validations = tuple(each for each in settled(index.events) if each["event"] == "validation")
        numbers, seconds, samples, loss, rates = table[:, [0, 1, 4, 5, 9]].T.copy()
        curve = Curve(numbers, _before(np.cumsum(samples)), _before(seconds), loss)
        known = rates[~np.isnan(rates)]
        return Run(folder, config, curve, int(samples.sum()), result, validations, known)


def _before(values: Array) -> Array:
    """Each value before it was added to: from zero on, without the last."""
    return np.concatenate([[0.0], values])[:-1]


def _read_profile(folder: RunFolder) -> Run:
    """The profile of a user's own program: of its steps only the times are known."""
    result = folder.read_result()
    records = [record for record in read_events(folder.events()) if record["event"] == "step"]
    curve = curve_of([record | {"samples": 1, "loss": 0.0} for record in records])
    config = RunConfig(launch=LaunchConfig(workers=result["workers"]))
    return Run(folder, config, curve, len(records), result, (), np.array([]))


@contextmanager
def naming_damage(folder: RunFolder) -> Generator[None]:
    """One sentence for values that no event has: lines of older versions have no checksum."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ShoalError) or folder.run_id:
            raise
        raise folder.damaged(f"its events cannot be read ({type(error).__name__}: {error})") from None


def curve_of(steps: Sequence[Record]) -> Curve:
    """The curve of step records, in the order given."""
    samples = np.cumsum([0.0, *(record["samples"] for record in steps)])
    seconds = np.array([0.0, *(record["seconds"] for record in steps)])
    return Curve(
        steps=np.array([record["step"] for record in steps], dtype=np.float64),
        samples=samples[:-1],
        seconds=seconds[:-1],
        loss=np.array([record["loss"] for record in steps], dtype=np.float64),
    )


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of repeated runs, step by step, cut to the shortest of them."""
    length = min(len(curve.loss) for curve in curves)

    def mean(name: str) -> Array:
        return np.mean([getattr(curve, name)[:length] for curve in curves], axis=0)

    return Curve(mean("steps"), mean("samples"), mean("seconds"), mean("loss"))


def extremes(values: Array, most: int) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Where a curve of at most 2 · `most` points lies: the smallest and the largest value of each group of neighbours.

    >>> extremes(np.array([5.0, 1.0, 9.0, 2.0, 3.0, 8.0, 4.0, 0.0]), 2).tolist()
    [0, 1, 2, 5, 7]
    """
    if len(values) <= 2 * most:
        return np.arange(len(values))
    groups = np.array_split(np.arange(len(values)), most)
    ends = {0, len(values) - 1}
    inside = {int(group[0] + pick(values[group])) for group in groups for pick in (np.argmin, np.argmax)}
    return np.array(sorted(ends | inside))
