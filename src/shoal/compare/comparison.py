"""Finished runs side by side: how fast each was, where its time went, and how far it ended from one machine.

Speed is a run's median step, so that neither the first step (libraries are still being loaded) nor a hiccup of the
machine counts; its spread is half the distance between the quartiles of the run's own steps. Two runs whose steps
differ by no more than that (`findings.lower`) are not told apart.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from shoal.compare.weights import largest_difference
from shoal.config.schema import RunConfig
from shoal.config.write import flat
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.report.communication import RankShares, communication
from shoal.report.findings import Measured, Verdict, inside_run, lower
from shoal.report.runs import Curve, Run, read_run

FREE = (
    "device", "engine", "threads", "launch", "output", "checkpoint", "strategy", "exchange", "partition",
    "train.balance", "train.micro_batch", "train.test", "data.dir",
)  # fmt: skip
"""What runs of one comparison may differ in without being another task: how the work is done and divided."""


@dataclass(frozen=True)
class Entry:
    """One run of a comparison."""

    name: str
    run: Run
    ranks: tuple[RankShares, ...]
    sample_s: Measured
    """Seconds per sample."""
    difference: float | None
    """From the reference's weights; none where there is none, or nothing to compare."""

    @property
    def config(self) -> RunConfig:
        """Its settings."""
        return self.run.config

    @property
    def workers(self) -> int:
        """How many trained together."""
        return self.config.launch.workers

    @property
    def samples_per_s(self) -> float:
        """Of the median step."""
        return 1.0 / self.sample_s.value if self.sample_s.value else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the training time by kind: means over the workers."""
        return {kind: fmean(getattr(rank, kind) for rank in self.ranks) for kind in KINDS}

    @property
    def accuracy(self) -> float | None:
        """On the test set."""
        return self.run.result.get("test_accuracy")

    def is_single(self) -> bool:
        """Whether it is one process."""
        return self.config.strategy == "single"

    def cores(self) -> int | None:
        """Threads of all its workers together; none where the settings do not say."""
        return self.workers * self.config.threads if self.config.threads else None


RESULT = (
    "status", "weights_sha256", "device", "steps", "seconds", "bytes_sent", "test_accuracy", "test_loss",
)  # fmt: skip
"""What a comparison reads of a run's closing record."""
KINDS = ("compute", "move", "wait", "other")
"""What training time consists of."""


@dataclass(frozen=True)
class Comparison:
    """Runs, and those among them that the others are measured against."""

    entries: tuple[Entry, ...]
    reference: Entry | None
    """One process, the widest if there are several: what every other run should equal."""
    all_cores: Entry | None
    """The reference, if it used more than one core: what every other run has to beat."""
    one_core: Entry | None
    """One process on one core."""
    notes: tuple[str, ...]
    """What a reader must know before reading a number."""

    def several(self) -> list[Entry]:
        """The runs with several workers."""
        return [entry for entry in self.entries if entry.workers > 1]


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare finished runs. One that did not finish is left out, with a note, if two others are there to compare."""
    given, folders = folders, [folder for folder in folders if _is_finished(folder)]
    left_out = [folder for folder in given if folder not in folders]
    if left_out and len(folders) < 2:
        raise ConfigError(
            f"the run in {left_out[0]} did not finish, so there is nothing to compare",
            f"Finish it with: shoal train --resume {shlex.quote(str(left_out[0]))}",
        )
    runs = [_read(folder) for folder in folders]
    names = _names(folders)
    singles = [run for run in runs if run.config.strategy == "single"]
    # No number of threads given means all cores.
    wide = max(singles, key=lambda run: run.config.threads or 10**6, default=None)
    narrow = next((run for run in singles if run.config.threads == 1), None)
    entries = [_entry(name, run, wide) for name, run in zip(names, runs, strict=True)]
    reference = next((entry for entry in entries if entry.run is wide), None)
    return Comparison(
        tuple(entries),
        reference,
        reference if reference and reference.config.threads != 1 else None,
        next((entry for entry in entries if entry.run is narrow), None),
        (*map(_left_out, left_out), *_notes(entries, reference)),
    )


def speed_up(entry: Entry, reference: Entry | None) -> float | None:
    """How many times as fast; none where there is nothing to compare with."""
    if reference is None or not entry.sample_s.value:
        return None
    return reference.sample_s.value / entry.sample_s.value


def is_faster(entry: Entry, reference: Entry) -> Verdict:
    """Whether its steps are shorter by more than both scatter."""
    return lower(entry.sample_s, reference.sample_s)


def has_same_bits(entry: Entry, reference: Entry) -> bool:
    """Whether both ended with the same weights, to the bit."""
    return entry.run.result["weights_sha256"] == reference.run.result["weights_sha256"]


def settings_apart(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, by path, with both values.

    >>> from shoal.config.schema import TrainConfig
    >>> settings_apart(RunConfig(seed=1), RunConfig(train=TrainConfig(epochs=5)))
    {'seed': (1, 0), 'train.epochs': (3, 5)}
    """
    ours, theirs = flat(a), flat(b)
    return {
        path: (ours.get(path), theirs.get(path))
        for path in [*ours, *(path for path in theirs if path not in ours)]
        if ours.get(path) != theirs.get(path)
    }


def _is_finished(folder: Path) -> bool:
    if not folder.is_dir() or not RunFolder(folder).config.exists():
        raise ConfigError(f"{folder} is not a run folder")
    if not RunFolder(folder).result.exists():
        return False
    result: Any = RunFolder(folder).read_result()
    missing = [key for key in RESULT if key not in result] if isinstance(result, dict) else list(RESULT)
    if missing:
        raise _damaged(folder, f"{RunFolder(folder).result.name} has no {missing[0]}")
    return result["status"] == "completed"


def _read(folder: Path) -> Run:
    try:
        run = read_run(folder)
    except (KeyError, TypeError, AttributeError) as error:  # lines of JSON that are no events of ours
        raise _damaged(folder, f"its events cannot be read ({type(error).__name__}: {error})") from None
    if len(run.curve.loss) < 2:
        raise ConfigError(
            f"the run in {folder} has too few steps to time one: {len(run.curve.loss)}",
            "Leave it out, or train for longer.",
        )
    return run


def _damaged(folder: Path, reason: str) -> ConfigError:
    return ConfigError(f"the run in {folder} is damaged: {reason}", "Leave it out, or train it again.")


def _left_out(folder: Path) -> str:
    how = f"shoal train --resume {shlex.quote(str(folder))}"
    return f"{folder} did not finish and is left out; finish it with: {how}"


def _names(folders: Sequence[Path]) -> list[str]:
    """Each folder's own name; with as much of the path as tells it from the others, where two have the same."""
    names = [folder.resolve().name for folder in folders]
    return [
        str(folder) if names.count(name) > 1 else name for folder, name in zip(folders, names, strict=True)
    ]


def _entry(name: str, run: Run, reference: Run | None) -> Entry:
    difference = largest_difference(run.folder.model, reference.folder.model) if reference else None
    return Entry(
        name, run, tuple(communication(run.folder.path)), inside_run(_sample_seconds(run.curve)), difference
    )


def _sample_seconds(curve: Curve) -> list[float]:
    """Seconds per sample of every step but the first (and the last, whose end the curve does not show)."""
    each: list[float] = (curve.step_seconds() / np.diff(curve.samples)).tolist()
    return each[1:] or each


def _notes(entries: Sequence[Entry], reference: Entry | None) -> list[str]:
    notes: list[str] = []
    if reference is None:
        notes.append(
            "No run is `single`: there is no speed-up over one process and no difference from one machine to tell."
        )
    first = reference or entries[0]
    for entry in entries:
        other = [
            f"{path} = {ours} (not {theirs})"
            for path, (ours, theirs) in settings_apart(entry.config, first.config).items()
            if not any(path == free or path.startswith(f"{free}.") for free in FREE)
        ]
        if other:
            notes.append(f"{entry.name} is another task than {first.name}: {', '.join(other)}.")
        if reference and entry.difference is None:
            notes.append(
                f"The weights of {entry.name} cannot be compared with {first.name}'s: a model.safetensors is missing, "
                "unreadable or of another model."
            )
        devices = entry.run.result["device"], first.run.result["device"]
        if devices[0] != devices[1]:
            notes.append(f"{entry.name} ran on {devices[0]}, {first.name} on {devices[1]}.")
        elif (
            reference
            and reference.config.threads != 1
            and entry.workers > 1
            and entry.cores() != first.cores()
        ):
            notes.append(
                f"{entry.name} has {_cores(entry)}, {first.name} {_cores(first)}: "
                "its speed-up over all cores is not one between equals."
            )
    return notes


def _cores(entry: Entry) -> str:
    cores = entry.cores()
    return "as many threads as torch took" if cores is None else f"{cores} thread{'s' * (cores > 1)} in all"
