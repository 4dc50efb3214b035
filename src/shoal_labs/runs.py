"""The runs of a lab: each is trained, or taken over from an earlier report."""

import json
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shoal.kit.base import CheckpointError, DivergedError, WorkerError, copy_folder
from shoal.kit.runs import RunFolder, Watch, check_weights, earlier_result, largest_difference, write_whole
from shoal.kit.settings import CheckpointConfig, RunConfig
from shoal.kit.training import Result, interrupted_by
from shoal_labs.student.host import HERE, Host
from shoal_labs.timing.busy import OtherWork
from shoal_labs.words import Words

NEVER = 10**9
"""Steps: more than any run of a lab makes."""
OTHER_WORK = ".other_work.json"
"""Beside the runs: how busy the machine was while they were made."""
ONLY_AT_THE_END = CheckpointConfig(every=NEVER, keep=1)
"""A lab's run is short: one checkpoint is enough."""

Found = TypeVar("Found")


class Runs:
    """Trains the runs of one report and keeps account of them.

    With `earlier`, the runs/ folder of an earlier report, a run that was finished there with the same settings is
    copied instead of trained. `taken_over` and `trained` list the names of the runs; `stopped` maps a run that a
    faulty worker ended to the error message. `host` is where they are trained.
    """

    def __init__(
        self, folder: Path, words: Words, watch: Watch, earlier: Path | None = None, host: Host = HERE
    ) -> None:
        self.folder, self.words, self.watch, self.earlier = folder, words, watch, earlier
        self.host = host
        self._other_work = OtherWork()
        self.taken_over: list[str] = []
        self.trained: list[str] = []
        self.stopped: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """The folder of a run."""
        return self.folder / name

    def say(self, key: str, **values: Any) -> None:
        """Show the user a line of the lab's words."""
        self.watch.say(self.words(key, **values))

    def busy(self) -> float:
        """The part of the machine that other programs used; 0 if it was not busy. A later report can take it over."""
        before = 0.0
        if self.earlier is not None and self.taken_over:
            with suppress(FileNotFoundError):
                before = json.loads((self.earlier / OTHER_WORK).read_text())
        part = max(before, self._other_work.part())
        if self.folder.exists():
            write_whole(self.folder / OTHER_WORK, json.dumps(part))
        return part

    def placed(self, name: str, config: RunConfig) -> RunConfig:
        """A run's settings with its folder in them."""
        return replace(config, output=replace(config.output, dir=str(self.folder), name=name))

    def train(self, name: str, config: RunConfig, label: str) -> Result:
        """The result of one run. A signal during the run ends the lab with a KeyboardInterrupt; the runs stay."""
        config = self.placed(name, config)
        result = self.reuse(name, partial(earlier_result, config))
        if result is None:
            self.trained.append(name)
            result = self.host.train(config, self.watch.running(label))
            self.busy()
        if result.status != "completed":
            raise interrupted_by(result.stopped_by)  # the worker ended its run in good order
        return replace(result, run=str(self.path(name)))

    def train_all(self, configs: Mapping[str, RunConfig]) -> None:
        """Train runs by name, one after the other. An error that a run's own fault explains does not end the lab.

        After the first one the watch shows the time so far, and the time left if the other runs take as long.
        """
        began, trained_before = time.monotonic(), len(self.trained)
        for number, (name, config) in enumerate(configs.items(), start=1):
            label = self.words("progress.run", number=number, total=len(configs), name=name)
            trained = len(self.trained) - trained_before
            shown = self.with_time_left(label, began, trained, len(configs) - number + 1)
            try:
                with _fault_is_expected(config):
                    result = self.train(name, config, shown)
            except (DivergedError, WorkerError) as error:
                if not config.launch.fault:
                    raise
                self.stopped[name] = error.message
                self.say("progress.ended", label=label)
            else:
                self.say("progress.done", label=label, loss=result.final_loss, seconds=result.seconds)

    def with_time_left(self, label: str, began: float, done: int, left: int) -> str:
        """A label with the time since `began`, and the time that is left if the others take as long as those done."""
        if not done:
            return label
        elapsed = time.monotonic() - began
        return self.words("progress.left", label=label, elapsed=elapsed, left=elapsed / done * left)

    def weight_difference(self, name: str, reference: str) -> float:
        """max|a − b| / max|b| of the weights of two runs, in the tensor where it is largest."""
        ours, its = (RunFolder(self.path(run)).model for run in (name, reference))
        for model in (ours, its):
            check_weights(model)
        difference = largest_difference(ours, its)
        if difference is None:
            raise CheckpointError(f"cannot compare the weights in {ours} and {its}")
        return difference

    def reuse(self, name: str, read: Callable[[Path], Found | None]) -> Found | None:
        """What `read` finds in the earlier run of this name, which is then copied; None if it has to be made anew."""
        if self.earlier is None or (found := read(self.earlier / name)) is None:
            return None
        copy_folder(self.earlier / name, self.path(name))
        self.taken_over.append(name)
        return found


@contextmanager
def _fault_is_expected(config: RunConfig) -> Generator[None]:
    """Silence the warnings of a run with a faulty worker: there they are the experiment."""
    with warnings.catch_warnings():
        if config.launch.fault:
            warnings.simplefilter("ignore")
        yield
