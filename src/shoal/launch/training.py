"""Train with several workers on this machine: the same worker as threads and as processes."""

import contextlib
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.comm.group import BUSY_S, SlowMemberWarning
from shoal.comm.links.measure import LinkNotice
from shoal.comm.mesh import coordinates
from shoal.comm.threads.group import ThreadGroup
from shoal.config.custom import no_exit
from shoal.config.mesh import layout_of
from shoal.config.schema import RunConfig, named_code
from shoal.config.write import to_plain
from shoal.errors import ShoalError
from shoal.events.folder import RunFolder, remove_unfinished, resume_command
from shoal.files import open_to_append
from shoal.launch import threads
from shoal.launch.cores import threads_per_worker
from shoal.launch.failure import unreported_end
from shoal.launch.handles import WorkerHandle
from shoal.launch.netns.cluster import VirtualCluster
from shoal.launch.netns.run import on_nodes
from shoal.launch.one_worker import training_limit_of
from shoal.launch.process import forks, processes
from shoal.launch.process.worker_tasks import TASKS
from shoal.launch.reports import Report, replay
from shoal.launch.supervise import Listener, Policy
from shoal.strategies.exchange.choice import CodecNotice
from shoal.strategies.server.settings import ServerConfig
from shoal.training import worker
from shoal.training.build import torch_settings
from shoal.training.observer import Observer, Silent
from shoal.training.result import Result
from shoal.training.stop import StopRequest

CATEGORIES: dict[str, type[Warning]] = {
    each.__name__: each for each in (SlowMemberWarning, LinkNotice, CodecNotice)
}
"""Warnings that keep their category on the way from a worker to its launcher."""


STRANGER_AT_RPC = (
    "Torch's RPC aborts if another program sends bytes to its port while workers connect. Run it where none can: "
    "unshare --user --map-root-user --net sh -c 'ip link set lo up && exec shoal train …'"
)


def by_threads(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None = None,
    then: Sequence[RunConfig] = (),
) -> Result:
    """Train with one thread per worker; return rank 0's result, or raise the first failure.

    Torch's settings (threads, random state) belong to the process and are set once, for all. The runs `then`
    follow with threads of their own, which cost nothing to start.
    """
    workers = config.launch.workers + config.num_servers
    shared = replace(config, threads=config.threads or threads_per_worker(workers))
    with torch_settings(shared) as device, StopRequest() as stop:

        def work(group: ThreadGroup) -> Result:
            watcher = observer if group.rank == 0 else Silent()
            with no_exit("a function of your own"):
                return worker.work(config, device, stop, watcher, group, resumed)

        result = threads.run(workers, work, training_limit_of(config))[0]
    if result.status == "completed":
        with contextlib.suppress(ShoalError):
            for config in then:
                by_threads(config, Silent()) if config.launch.workers > 1 else worker.run(config, Silent())
    return result


def by_processes(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None = None,
    then: Sequence[RunConfig] = (),
) -> Result:
    """Train with one process per worker; return rank 0's result, or raise the first failure.

    The same processes make the runs `then` afterwards, which costs no start; only their folders show their results. A
    run of one worker among them is rank 0's, while the others wait. What a worker prints, if anything, is kept in the
    run folder: `worker.rank1.log`.
    """

    def run(settings: dict[str, Any], workers: int, listener: Listener, policy: Policy) -> None:
        task = processes.ProcessTask(settings, keeps_output=True, threads=config.threads or 0)
        processes.run(task, workers, listener, policy)

    return _supervised(config, observer, resumed, then, run)


def by_virtual_machines(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None = None,
    then: Sequence[RunConfig] = (),
) -> Result:
    """Train with the workers on virtual machines; return rank 0's result, or raise the first failure."""
    rate = config.launch.link[0].bits_per_s if config.launch.link else None
    with VirtualCluster(config.launch.nodes, rate) as cluster:

        def run(settings: dict[str, Any], workers: int, listener: Listener, policy: Policy) -> None:
            task = processes.ProcessTask(settings, keeps_output=True, threads=config.threads or 0)
            on_nodes(task, cluster.nodes, workers, listener, policy)

        return _supervised(config, observer, resumed, then, run)


def by_forks(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None = None,
    then: Sequence[RunConfig] = (),
    fresh: bool = False,
) -> Result:
    """Train with one copy of this process per worker, so that they have the objects that its settings name.

    Each computes with one thread unless this process is `fresh` (`forks`).
    """

    def run(settings: dict[str, Any], workers: int, listener: Listener, policy: Policy) -> None:
        forks.run(lambda reporter: TASKS["train"](reporter, settings), workers, listener, policy, fresh)

    return _supervised(config if fresh else replace(config, threads=1), observer, resumed, then, run)


def _supervised(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None,
    then: Sequence[RunConfig],
    run: Callable[[dict[str, Any], int, Listener, Policy], None],
) -> Result:
    """The result of `run(settings of the workers' task, number of workers, listener, policy)`."""
    settings = {
        "kind": "train",
        "config": to_plain(config),
        "resumed": str(resumed.path) if resumed else "",
        "then": [to_plain(each) for each in then],
        "every_step": observer.wants_every_step,
    }
    listener = _TrainingListener(config, observer, resumed)
    limit_s = training_limit_of(config)
    try:
        workers = config.launch.workers + config.num_servers
        run(settings, workers, listener, Policy.within(limit_s, BUSY_S + limit_s))
    finally:  # no worker is left; one that was killed may have been saving
        listener.remove_unfinished()
    assert listener.result is not None  # rank 0 has finished, or `run` would have raised
    return listener.result


class _TrainingListener(Listener):
    """Passes what rank 0 reports to an observer, and collects the result, the warnings and the output."""

    def __init__(self, config: RunConfig, observer: Observer, resumed: RunFolder | None) -> None:
        self._config, self._observer = config, observer
        self._folder = resumed
        self._has_started = False
        self._warned: set[str] = set()
        self._lost: set[int] = set()
        self.result: Result | None = None

    def heard(self, rank: int, report: Report) -> None:
        kind = report["kind"]
        if kind == "warned":
            self._warn(report["category"], report["text"])
        elif rank == 0 and kind == "finished":
            self.result = Result(**report["result"])
        elif rank == 0:
            if kind == "started":
                self._folder, self._has_started = RunFolder(Path(report["folder"])), True
            replay(report, self._config, self._observer)

    def _warn(self, category: str, text: str) -> None:
        """Warn once of what several workers saw; of a slow member, each reports how long it has waited itself."""
        slow = category == SlowMemberWarning.__name__
        # Of a slow member: "rank 1 is slow", "rank 1 has not reached all_reduce #63".
        key = text.partition(":")[0] if slow else text
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, CATEGORIES.get(category, UserWarning), stacklevel=2)

    def printed(self, rank: int, output: bytes) -> None:
        """Write what a worker has printed into the run folder, once it is ours; a failure hides no other error."""
        if output.strip() and self._folder is not None and self._has_started:
            path = self._folder.path / f"worker.rank{rank}.log"
            try:
                with open_to_append(path) as file:
                    file.write(output)
            except OSError as error:
                warnings.warn(f"cannot write {path}: {error.strerror}", stacklevel=2)

    def goes_on_without(self, handle: WorkerHandle) -> bool:
        """Whether a parameter server continues without a worker; rank 0 writes the results, so it cannot be missed."""
        sync, workers = self._config.sync, self._config.launch.workers
        can_lose = isinstance(sync, ServerConfig) and sync.on_lost == "continue" and self._has_started
        if not can_lose or not 0 < handle.rank < workers:
            return False
        what = unreported_end(handle.rank, workers + self._config.num_servers, handle.poll() or 0, "")
        warnings.warn(f"{what.message}: the others continue, and take its share of the data", stacklevel=2)
        self._lost.add(handle.rank)
        return True

    def remove_unfinished(self) -> None:
        if self._folder is not None and self._has_started:
            remove_unfinished(self._folder)

    def role_of(self, rank: int, code: int) -> Sequence[str]:
        """Where a rank is in a mesh that divides the model; why the others do not continue without it."""
        workers, axes = self._config.launch.workers, self._config.axes
        if self._config.strategy == "rpc" and code == -signal.SIGABRT and not self._has_started:
            return [STRANGER_AT_RPC]
        if rank in self._lost:
            return [
                "The others could not continue: all workers met, to save or to evaluate, when it was lost."
            ]
        if rank >= workers:
            return [f"Rank {rank} was parameter server {rank - workers} of {self._config.num_servers}."]
        if layout_of(axes) == "whole":
            return []
        place = ", ".join(f"{axis} {at}" for axis, at in coordinates(rank, axes).items())
        return [f"In the mesh, rank {rank} is {place}."]

    def advice(self) -> Sequence[str]:
        if self._folder is None:
            return []
        path, lines = self._folder.path, list[str]()
        if any(path.glob("worker.rank*.log")):
            lines.append(f"Output of the workers: {path}/worker.rank*.log")
        if any(self._folder.checkpoints.glob("step-*[0-9]")):
            lines.append(
                f"Resume from the last checkpoint: {resume_command(path, bool(named_code(self._config)))}"
            )
        return lines
