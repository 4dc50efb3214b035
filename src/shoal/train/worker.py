"""A worker: trains what a config describes and leaves a run folder behind. The same for every launcher."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

from shoal import __version__
from shoal.comm.agree import largest_of, share_text
from shoal.comm.group import BUSY_S, Group
from shoal.comm.links.measure import Measured
from shoal.comm.threads import ThreadGroup
from shoal.comm.traced import traced
from shoal.config.schema import RunConfig
from shoal.config.write import to_toml
from shoal.events.file import EventFile
from shoal.events.folder import RunFolder, create, held, write_whole
from shoal.parallel.state import weights_sha256
from shoal.train import checkpoint
from shoal.train.balance import balance_of
from shoal.train.build import Built, build, torch_settings
from shoal.train.evaluate import Metrics, evaluate
from shoal.train.links import laid, link_event
from shoal.train.loop import Job, train
from shoal.train.observer import Observer, Silent
from shoal.train.progress import Progress
from shoal.train.result import Result
from shoal.train.steplog import Calls, StepLog
from shoal.train.stop import StopRequest
from shoal.train.weights import save_model


def run(config: RunConfig, observer: Observer | None = None, group: Group | None = None) -> Result:
    """Train from the beginning, in a new run folder; with a group, as one of its workers."""
    with torch_settings(config) as device, StopRequest() as stop:
        return work(config, device, stop, observer or Silent(), group or alone())


def resume(
    folder: RunFolder, config: RunConfig, observer: Observer | None = None, group: Group | None = None
) -> Result:
    """Go on from the newest whole checkpoint of a run: the result is the one it would have had without the stop."""
    with torch_settings(config) as device, StopRequest() as stop:
        return work(config, device, stop, observer or Silent(), group or alone(), folder)


def work(
    config: RunConfig,
    device: torch.device,
    stop: StopRequest,
    observer: Observer,
    group: Group,
    resumed: RunFolder | None = None,
) -> Result:
    """What a worker does, be it a process or a thread: lay the run's links, build, train, evaluate, write down."""
    with laid(group, config.launch) as (linked, measured):
        return _work(config, device, stop, observer, linked, measured, resumed)


def _work(
    config: RunConfig,
    device: torch.device,
    stop: StopRequest,
    observer: Observer,
    group: Group,
    links: Sequence[Measured],
    resumed: RunFolder | None,
) -> Result:
    """Build, train, evaluate, write down.

    All that can be wrong is found before the run folder is made. Rank 0 alone writes settings, checkpoints, weights
    and result; every worker writes its own events.
    """
    calls = Calls()
    group = traced(group, calls.append)
    built = build(config, device, group)
    folder = resumed or _new_folder(config, group)
    first = group.rank == 0
    with held(folder) if first else nullcontext(), EventFile(folder.events(group.rank)) as events:
        progress = _restore(built, resumed) if resumed else Progress()
        if first:
            write_whole(folder.config, to_toml(config))
        notes = _Notes(built, folder, events, observer)
        log = StepLog(events, built.span, calls, observer, device, config.output.trace)
        notes.started(progress, links)
        try:
            progress = train(_job(built, notes, stop, log, progress), progress)
        except BaseException as error:  # whatever it is, the run's own record says that it failed
            events.append({"event": "failed", "error": str(error) or type(error).__name__})
            raise
        done = progress.step >= built.total_steps
        # The one time the test set is read.
        wanted = done and config.train.test
        test = evaluate(built.strategy.evaluate, built.data, built.data.test, group) if wanted else None
        if done and notes.validation is None and built.data.validation is not None:
            # A run that was stopped at its very end has its validation still to come.
            notes.validation = evaluate(built.strategy.evaluate, built.data, built.data.validation, group)
        if done and first:
            save_model(folder.model, built)
        result = _result(built, folder, progress, test, notes.validation, None if done else notes.stopped_by)
        events.append(
            {"event": "end", "status": result.status, "step": progress.step, "time_ns": time.time_ns()}
        )
        if first:
            write_whole(folder.result, result.to_json() + "\n")
    return result


def alone() -> Group:
    """A world of one: every collective is over at once."""
    return ThreadGroup.world(1)[0]


def _restore(built: Built, folder: RunFolder) -> Progress:
    built.group.beat(BUSY_S)
    saved = checkpoint.latest(folder.checkpoints)
    pieces = saved.pieces()
    built.strategy.load(pieces)
    _set_random_state(pieces)
    return saved.progress


def _new_folder(config: RunConfig, group: Group) -> RunFolder:
    """The folder that rank 0 makes; the others are told."""
    path = ""
    if group.rank == 0:
        path = str(create(Path(config.output.dir), config.output.name, _automatic_name(config)).path)
    return RunFolder(Path(share_text(group, path)))


@dataclass
class _Notes:
    """What the loop has written down on its way: checkpoints, validations, events."""

    built: Built
    folder: RunFolder
    events: EventFile
    observer: Observer
    validation: Metrics | None = None
    stopped_by: int = 0
    """The signal that any worker got, 0 for none."""

    def should_stop(self, stop: StopRequest) -> bool:
        self.stopped_by = largest_of(self.built.group, stop.signal or 0)
        return self.stopped_by != 0

    def started(self, progress: Progress, links: Sequence[Measured]) -> None:
        built = self.built
        record = {
            "event": "start",
            "step": progress.step,
            "time_ns": time.time_ns(),
            "total_steps": built.total_steps,
        }
        self.events.append(
            record
            | {"strategy": built.config.strategy.name, "workers": built.group.size}
            | {"version": __version__, "torch": torch.__version__, "device": str(built.device)}
            | {"threads": torch.get_num_threads()}
        )
        for link in links if built.group.rank == 0 else ():
            self.events.append(link_event(link))
        self.observer.started(built.config, self.folder, progress, built.total_steps, str(built.device))

    def save(self, progress: Progress) -> None:
        if self.built.group.rank != 0:
            return
        pieces = self.built.strategy.pieces() | _random_state()
        self.built.group.beat(BUSY_S)  # a slow disk is no reason to be given up
        checkpoint.save(self.folder.checkpoints, pieces, progress, self.built.config.checkpoint.keep)
        self.events.append({"event": "checkpoint", "step": progress.step, "time_ns": time.time_ns()})

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        if metrics:
            self.validation = metrics
            self.events.append(
                {"event": "validation", "step": progress.step, "epoch": progress.epoch, **metrics._asdict()}
            )
        self.observer.validated(progress, metrics)


def _job(built: Built, notes: _Notes, stop: StopRequest, log: StepLog, progress: Progress) -> Job:
    return Job(
        data=built.data,
        strategy=built.strategy,
        lr=built.lr,
        division=built.division,
        seed=built.config.seed,
        batch_size=built.batch_size,
        micro_batch=built.config.train.micro_batch,
        total_steps=built.total_steps,
        save_every=built.config.checkpoint.every,
        save=notes.save,
        should_stop=lambda: notes.should_stop(stop),
        validated=notes.validated,
        group=built.group,
        now=built.now,
        log=log,
        span=built.span,
        balance=balance_of(built, progress, notes.events.append),
    )


def _result(
    built: Built,
    folder: RunFolder,
    progress: Progress,
    test: Metrics | None,
    validation: Metrics | None,
    stopped_by: int | None,
) -> Result:
    workers = built.group.size
    samples = progress.epoch * len(built.data.train) + progress.consumed
    return Result(
        status="completed" if stopped_by is None else "interrupted",
        strategy=built.config.strategy.name,
        workers=workers,
        rank=built.group.rank,
        epochs=progress.epoch,
        steps=progress.step,
        final_loss=progress.final_loss(),
        test_loss=test.loss if test else None,
        test_accuracy=test.accuracy if test else None,
        validation_loss=validation.loss if validation else None,
        validation_accuracy=validation.accuracy if validation else None,
        seconds=round(progress.seconds, 6),
        samples_per_s=round(samples / progress.seconds, 3) if progress.seconds else 0.0,
        bytes_sent=sum(total.num_bytes for name, total in built.group.totals.items() if name != "recv")
        if workers > 1
        else 0,
        wait_s=round(sum(total.blocked_ns for total in built.group.totals.values()) / 1e9, 6)
        if workers > 1
        else 0.0,
        weights_sha256=weights_sha256(built.strategy.pieces()),
        run=str(folder.path),
        device=str(built.device),
        stopped_by=stopped_by,
    )


def _automatic_name(config: RunConfig) -> str:
    model = config.model.name.rpartition(":")[2]
    optimizer = config.optimizer.name.rpartition(":")[2]
    return f"{model}-{optimizer}-{config.data.name}-{datetime.now():%Y%m%d-%H%M%S}"


def _random_state() -> dict[str, Tensor]:
    """Torch's global generators: nothing of ours draws from them, but a user's dropout does."""
    state = {"random.cpu": torch.get_rng_state()}
    return state | ({"random.cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def _set_random_state(pieces: dict[str, Tensor]) -> None:
    torch.set_rng_state(pieces["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in pieces:
        torch.cuda.set_rng_state(pieces["random.cuda"])
