"""Finished runs side by side: how fast each was, where its time went, and whether it equals one machine.

The speed of a run is its median step, so neither the first step (libraries are still being loaded) nor a hiccup of the
machine counts; its spread is half the interquartile range of its own steps. Two runs differ only if their steps do so
by more than the spread (`findings.lower`), and only on a machine that was not busy with other work.

The reference for equality is one process with as many threads as each worker has, because another number of threads
rounds differently. The references for speed are one process on all cores and one process on one core.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, mode
from typing import Any

import numpy as np

from shoal.compare.weight_difference import first_step_difference, largest_difference
from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig, may_differ, named_code
from shoal.config.write import flat
from shoal.errors import ConfigError
from shoal.events.clocks import BUSY
from shoal.events.file import read_events
from shoal.events.fingerprint import check_weights
from shoal.events.folder import RunFolder, resume_command
from shoal.report.communication import RankShares, communication
from shoal.report.findings import Measured, Verdict, inside_run, lower
from shoal.report.finished_runs import Run, naming_damage, read_run
from shoal.report.meetings import event_files
from shoal.report.step_index import read_index

RESULT = (
    "status", "weights_sha256", "device", "steps", "seconds", "bytes_sent", "test_accuracy", "test_loss",
)  # fmt: skip
"""What a comparison reads of `result.json`."""
KINDS = ("compute", "wait", "move", "encode", "other")
"""What training time consists of."""
INVARIANT_FOLDER = "invariant"
"""The run folder, inside another run's folder, of a few steps with `--reduction invariant`.

Their bits do not depend on the number of workers. The workers of a run make them after it (`variants.py`), so that the
times of a comparison come from ordinary runs alone.
"""
INVARIANT_STEPS = 20
FAILED = "failed"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    name: str
    run: Run
    ranks: tuple[RankShares, ...]
    sample_s: Measured
    """Seconds per sample."""
    threads: int | None
    """Threads of each worker; None if unknown."""
    not_scheduled: float | None
    """The part of the training time that its most delayed thread was ready but not scheduled; None if unknown."""
    first_step: float | None
    """Difference from the reference after the first step; None without a reference or without the recorded state."""
    difference: float | None
    """Difference from the reference's final weights; None without a reference or comparable weights."""
    invariant: str | None = None
    """The fingerprint after its invariant steps; FAILED, or None if it made none."""
    cores_there: int | None = None
    """Cores of the machine that it ran on; None if unknown."""

    @property
    def config(self) -> RunConfig:
        """Its settings."""
        return self.run.config

    @property
    def is_profile(self) -> bool:
        """Whether it is a user's own program, with settings that are not known."""
        return "profile" in self.run.result

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.config.launch.workers

    @property
    def samples_per_s(self) -> float:
        """In the median step."""
        return 1.0 / self.sample_s.value if self.sample_s.value else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the training time by kind: means over the workers."""
        return {kind: fmean(getattr(rank, kind) for rank in self.ranks) for kind in KINDS}

    @property
    def sent_bytes(self) -> int | None:
        """Bytes that left a worker, the mean over the workers; None if an older version counted them otherwise."""
        if self.workers == 1:
            return 0
        sent = [rank.sent_bytes for rank in self.ranks if rank.sent_bytes is not None]
        return round(sum(sent) / self.workers) if len(sent) == len(self.ranks) else None

    @property
    def mapped_bytes(self) -> int:
        """Of these, the bytes that did not travel because workers map each other's memory."""
        return round(sum(rank.mapped_bytes for rank in self.ranks) / self.workers)

    @property
    def accuracy(self) -> float | None:
        """On the test set."""
        return self.run.result.get("test_accuracy")

    @property
    def was_delayed(self) -> bool:
        """Whether the machine was too busy for its times to mean anything."""
        return (self.not_scheduled or 0.0) > BUSY

    @property
    def is_crowded(self) -> bool:
        """Whether it was delayed by its own processes: the launcher started more of them than there were cores."""
        processes = self.config.launch.workers + self.config.num_servers
        return self.was_delayed and self.cores_there is not None and processes > self.cores_there

    @property
    def sha256(self) -> str:
        """The fingerprint of its final weights."""
        return self.run.result["weights_sha256"]

    @property
    def is_checked(self) -> bool:
        """Whether its files have checksums; older versions wrote none."""
        return bool(self.run.folder.run_id)

    def cores(self) -> int | None:
        """Threads of all its workers together; None if unknown."""
        return self.workers * self.threads if self.threads else None


@dataclass(frozen=True)
class Comparison:
    """Runs, and those among them that the others are measured against."""

    entries: tuple[ComparedRun, ...]
    reference: ComparedRun | None
    """One process with the workers' number of threads: what every other run should equal."""
    all_cores: ComparedRun | None
    """One process with the most threads, if these are more than one: what every other run has to beat."""
    one_core: ComparedRun | None
    """One process on one core."""
    unfinished: Mapping[Path, str] = field(default_factory=dict[Path, str])
    """The folders of runs that did not finish and were left out, with the command that finishes each."""

    @property
    def one_process(self) -> ComparedRun | None:
        """The one process that speeds are compared with: on all cores, or else on one."""
        return self.all_cores or self.one_core

    @property
    def invariant(self) -> ComparedRun | None:
        """One process whose invariant steps have the bits that all others should have."""
        singles = [self.reference, *(each for each in self.entries if each.config.strategy == "single")]
        return next((each for each in singles if each and each.invariant not in (None, FAILED)), None)

    def several(self) -> list[ComparedRun]:
        """The runs with several workers."""
        return [entry for entry in self.entries if entry.workers > 1]


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare finished runs. Unfinished ones are left out if two others are there to compare."""
    profile = next((folder for folder in folders if RunFolder(folder).is_profile), None)
    if profile and len(folders) > 1:
        raise ConfigError(f"{profile} is the profile of a program", "Look at it alone: shoal report RUN")
    finished = [folder for folder in folders if profile or _is_finished(folder)]
    unfinished = {folder: _resume(folder) for folder in folders if folder not in finished}
    if unfinished and len(finished) < 2:
        folder, command = next(iter(unfinished.items()))
        raise ConfigError(
            f"the run in {folder} did not finish, so there is nothing to show",
            f"Finish it with: {command}",
        )
    runs = [_read(folder) for folder in finished]
    starts = {run.folder.path: _start(run) for run in runs}
    threads = {run.folder.path: starts[run.folder.path].get("threads", run.config.threads) for run in runs}
    singles = [run for run in runs if run.config.strategy == "single"]
    # An unknown number of threads means all cores.
    widest = max(singles, key=lambda run: threads[run.folder.path] or 10**6, default=None)
    of_workers = [threads[run.folder.path] for run in runs if run.config.launch.workers > 1]
    equal = [run for run in singles if of_workers and threads[run.folder.path] == mode(of_workers)]
    reference_run = equal[0] if equal else widest
    entries: list[ComparedRun] = []
    names = [_program(runs[0])] if profile else _names(finished)
    for name, run in zip(names, runs, strict=True):
        with naming_damage(run.folder):
            cores = starts[run.folder.path].get("cores")
            entries.append(_entry(name, run, threads[run.folder.path], cores, reference_run))
    reference = next((entry for entry in entries if entry.run is reference_run), None)
    all_cores = next((entry for entry in entries if entry.run is widest and entry.threads != 1), None)
    one_core = next((entry for entry in entries if entry.run in singles and entry.threads == 1), None)
    return Comparison(tuple(entries), reference, all_cores, one_core, unfinished)


def speed_up(entry: ComparedRun, reference: ComparedRun | None) -> float | None:
    """How many times as fast as the reference; None without one."""
    return reference.sample_s.value / entry.sample_s.value if reference and entry.sample_s.value else None


def is_faster(entry: ComparedRun, reference: ComparedRun) -> Verdict:
    """Whether its steps are shorter by more than the spread of both."""
    return lower(entry.sample_s, reference.sample_s)


def same_bits(comparison: Comparison) -> list[list[ComparedRun]]:
    """The runs in groups that ended with the same weights, to the bit; a run that is alone in its group is left out."""
    groups: dict[str, list[ComparedRun]] = {}
    for entry in comparison.entries:
        groups.setdefault(entry.sha256, []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


def not_scheduled(folder: Path) -> float | None:
    """The part of a run's training time that its most delayed thread was ready but not scheduled; None if unknown."""
    events = [event for rank, path in event_files(folder) for event in read_index(rank, path).events]
    delays = [event.get("not_scheduled") for event in events if event["event"] == "end"]
    return max((delay for delay in delays if delay is not None), default=None)


def invariant_sha256(folder: Path) -> str | None:
    """The fingerprint of the weights after a run's invariant steps; None if it made none, FAILED if they failed."""
    own = RunFolder(folder / INVARIANT_FOLDER)
    if not own.path.is_dir():
        return None
    return own.finished_result().get("weights_sha256") or FAILED


def settings_apart(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, by path, with both values.

    >>> from shoal.config.sections.train import TrainConfig
    >>> settings_apart(RunConfig(seed=1), RunConfig(train=TrainConfig(epochs=5)))
    {'seed': (1, 0), 'train.epochs': (3, 5)}
    """
    ours, theirs = flat(a), flat(b)
    both = {path: (ours.get(path), theirs.get(path)) for path in {**ours, **theirs}}
    return {path: values for path, values in both.items() if values[0] != values[1]}


def other_settings(entry: ComparedRun, reference: ComparedRun) -> dict[str, tuple[Any, Any]]:
    """The settings that make a run another task than the reference, by path, with both values."""
    apart = settings_apart(entry.config, reference.config)
    return {path: values for path, values in apart.items() if not may_differ(path, "compared")}


def differ_only_in(a: ComparedRun, b: ComparedRun, path: str) -> bool:
    """Whether one setting alone may explain a difference of two runs; where their files are does not count."""
    apart = settings_apart(a.config, b.config)
    return all(f"{each}.".startswith((f"{path}.", "output.", "checkpoint.")) for each in apart)


def _is_finished(folder: Path) -> bool:
    run = RunFolder(folder)
    if not folder.is_dir() or not run.config.exists():
        raise ConfigError(f"{folder} is not a run folder")
    read_recipe(str(run.config))  # damage to the settings is the first to be named: they have the run's id
    if not run.result.exists():
        return False
    result = run.read_result()
    missing = [key for key in RESULT if key not in result]
    if missing:
        raise run.damaged(f"{run.result.name} has no {missing[0]}")
    return result["status"] == "completed"


def _resume(folder: Path) -> str:
    config = from_tree(read_recipe(str(RunFolder(folder).config)))
    return resume_command(folder, bool(named_code(config)))


def _read(folder: Path) -> Run:
    run = read_run(folder)
    if run.folder.model.exists():
        check_weights(run.folder.model)
    if len(run.curve.loss) < 2:
        raise ConfigError(
            f"the run in {folder} has too few steps to time one: {len(run.curve.loss)}",
            "Leave it out, or train for longer.",
        )
    return run


def _names(folders: Sequence[Path]) -> list[str]:
    """The name of each folder, or its path where two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return [
        str(folder) if names.count(name) > 1 else name for folder, name in zip(folders, names, strict=True)
    ]


def _program(run: Run) -> str:
    """The file of the program that was profiled."""
    return Path(str(run.result["profile"]).split(" ", 1)[0]).name


def _start(run: Run) -> Mapping[str, Any]:
    """What rank 0 reported when it began last; nothing if its events have no start."""
    starts = read_events(run.folder.events(), "start")
    return starts[-1] if starts else {}


def _entry(
    name: str, run: Run, threads: int | None, cores_there: int | None, reference: Run | None
) -> ComparedRun:
    # Seconds per sample of every step but the first, and the last, whose end the curve does not show.
    sample_s: list[float] = (run.curve.step_seconds() / np.diff(run.curve.samples)).tolist()
    return ComparedRun(
        name,
        run,
        tuple(communication(run.folder.path)),
        inside_run(sample_s[1:] or sample_s),
        threads,
        not_scheduled(run.folder.path),
        first_step_difference(run.folder.first_step, reference.folder.first_step) if reference else None,
        largest_difference(run.folder.model, reference.folder.model) if reference else None,
        invariant_sha256(run.folder.path),
        cores_there,
    )
