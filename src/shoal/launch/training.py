"""Training with several workers on this machine: the same worker as threads and as processes."""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shoal.comm.group import SlowMemberWarning
from shoal.comm.links.measure import LinkNotice
from shoal.comm.threads import ThreadGroup
from shoal.config.plain import to_plain
from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.launch import processes, threads
from shoal.launch.members import Task, threads_per_worker
from shoal.launch.messages import Message, pass_on
from shoal.train import worker
from shoal.train.build import torch_settings
from shoal.train.observer import Observer, Silent
from shoal.train.result import Result
from shoal.train.stop import StopRequest

CATEGORIES: dict[str, type[Warning]] = {each.__name__: each for each in (SlowMemberWarning, LinkNotice)}
"""Warnings that keep their kind on their way from a worker to its launcher."""


def by_threads(config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
    """Train with one thread per worker; the result is rank 0's, and the first failure is raised.

    Torch's settings (threads, random state) are the process's and are set once, for all.
    """
    workers = config.launch.workers
    shared = replace(config, threads=config.threads or threads_per_worker(workers))
    with torch_settings(shared) as device, StopRequest() as stop:

        def work(group: ThreadGroup) -> Result:
            watcher = observer if group.rank == 0 else Silent()
            return worker.work(config, device, stop, watcher, group, resumed)

        return threads.run(workers, work)[0]


def by_processes(config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
    """Train with one process per worker; the result is rank 0's, and the first failure is raised.

    What workers print is kept beside the run: `worker.rank1.log`, where there is anything to keep.
    """
    ears = _Ears(config, observer, resumed)
    settings = {
        "kind": "train",
        "config": to_plain(config),
        "resumed": str(resumed.path) if resumed else "",
    }
    processes.run(Task(settings, config.launch.workers, keeps_output=True, threads=config.threads or 0), ears)
    assert ears.result is not None  # rank 0 has finished, or `run` would have raised
    return ears.result


class _Ears:
    """What the launcher has heard of a run."""

    def __init__(self, config: RunConfig, observer: Observer, resumed: RunFolder | None) -> None:
        self._config, self._observer = config, observer
        self._folder = resumed
        self._warned: set[str] = set()
        self.result: Result | None = None

    def heard(self, rank: int, message: Message) -> None:
        """Take a message of a worker."""
        kind = message["kind"]
        if kind == "warned":
            self._warn(message["category"], message["text"])
        elif rank == 0 and kind == "finished":
            self.result = Result(**message["result"])
        elif rank == 0:
            if kind == "started":
                self._folder = RunFolder(Path(message["folder"]))
            pass_on(message, self._config, self._observer)

    def _warn(self, category: str, text: str) -> None:
        """Warn once of what several workers saw: of a slow one, each says how long it itself has waited."""
        slow = category == SlowMemberWarning.__name__
        key = text.partition(":")[0] if slow else text
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, CATEGORIES.get(category, UserWarning), stacklevel=2)

    def printed(self, rank: int, output: bytes) -> None:
        """Keep what a worker has printed, where there is anything and a run to keep it with."""
        if output.strip() and self._folder is not None:
            with (self._folder.path / f"worker.rank{rank}.log").open("ab") as file:
                file.write(output)

    def advice(self) -> Sequence[str]:
        """Where the workers' output is, and how to go on."""
        if self._folder is None:
            return []
        path, lines = self._folder.path, list[str]()
        if any(path.glob("worker.rank*.log")):
            lines.append(f"What the workers printed: {path}/worker.rank*.log")
        if any(self._folder.checkpoints.glob("step-*[0-9]")):
            lines.append(
                f"Go on from the last checkpoint with: shoal train --resume {shlex.quote(str(path))}"
            )
        return lines
