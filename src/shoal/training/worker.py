"""A worker: trains what a config describes and writes a run folder. The same for every launcher."""

import platform
import secrets
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import torch

from shoal import __version__
from shoal.comm.agree import share_text
from shoal.comm.alone import alone
from shoal.comm.group import BUSY_S, Group
from shoal.comm.links.measure import Measured
from shoal.comm.traced import traced
from shoal.config.schema import RunConfig, WeightPruneConfig
from shoal.config.seal import sealed
from shoal.config.write import to_toml
from shoal.events.clocks import ClockOffset
from shoal.events.file import EventFile
from shoal.events.folder import RunFolder, create, held, remove_unfinished, run_id_line, write_whole
from shoal.events.run_delay import RunDelay
from shoal.events.spans import Span
from shoal.parallel.exchange.auto import Auto
from shoal.parallel.exchange.choice import Choice, CodecNotice
from shoal.parallel.state import load_weights
from shoal.parallel.whole_tensors import WholeTensors, weights_sha256
from shoal.prune.channels.description import ModelDescription
from shoal.prune.schedule import CubicSchedule
from shoal.training import checkpoint
from shoal.training.balance import balance_of
from shoal.training.build import Built, build, torch_settings
from shoal.training.clock import measure_clock_offset
from shoal.training.evaluation.evaluate import Metrics, evaluate
from shoal.training.loop import Job, train
from shoal.training.memory.limit import MemoryLimit
from shoal.training.observer import Observer, Silent
from shoal.training.progress import Progress
from shoal.training.prune.files import write_masks, write_network
from shoal.training.prune.pruning import Pruning
from shoal.training.random_state import RandomState
from shoal.training.result import Result
from shoal.training.setup.links import link_event, with_links
from shoal.training.setup.remedies import remedies_of
from shoal.training.steplog import StepLog
from shoal.training.stop import StopRequest
from shoal.training.weights import export_model


def run(
    config: RunConfig,
    observer: Observer | None = None,
    group: Group | None = None,
    resumed: RunFolder | None = None,
) -> Result:
    """Train in a new run folder, or resume a run from its newest checkpoint; with a group, as one of its workers.

    A resumed run has the same result as one that was never stopped.
    """
    with torch_settings(config) as device, StopRequest() as stop:
        return work(config, device, stop, observer or Silent(), group or alone(), resumed)


def work(
    config: RunConfig,
    device: torch.device,
    stop: StopRequest,
    observer: Observer,
    group: Group,
    resumed: RunFolder | None = None,
) -> Result:
    """Run one worker, a process or a thread: create links, build, train, evaluate and write the results."""
    with with_links(group, config.launch) as (linked, measured):
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
    """Build, train, evaluate and write the results.

    Errors in the settings are raised before the run folder is created. Rank 0 writes settings, weights and result; each
    worker writes its own events and its part of a checkpoint.
    """
    calls = list[Span]()
    group = traced(group, calls.append)
    limit = MemoryLimit(config, device)
    built = build(config, device, group, resumed=resumed)
    stop.run_has_begun = True
    by_threads = config.launch.launcher == "threads" and group.size > 1
    # The tensor axis varies fastest.
    random_rank, copy = divmod(group.rank, config.axes.get("tensor", 1))
    with RandomState(config.seed, random_rank, by_threads, copy) as random:
        folder, run_id = (resumed, resumed.run_id) if resumed else _new_folder(config, group)
        first = group.rank == 0
        with held(folder) if first else nullcontext(), _events(folder, group, resumed) as events:
            if resumed and first:
                remove_unfinished(folder)
            saved = _restore(built, random, resumed) if resumed else None
            progress = saved.progress if saved else Progress()
            if first:
                write_whole(folder.config, sealed(run_id_line(run_id) + to_toml(built.config)))
                if built.starting_point.widths and not resumed:
                    _write_network(built, folder)
            remedies = remedies_of(built.config)
            log = StepLog(events, built.span, calls, observer, device, config.output.trace, remedies)
            notes = _Notes(built, random, folder, run_id, events, observer)
            notes.restored(saved)
            notes.started(progress, links, measure_clock_offset(group.untraced))
            if isinstance(built.exchange, Auto):
                built.exchange.on_choice = notes.chose
            run_delay = RunDelay()
            try:
                job = _job(built, notes, stop, log, progress, limit)
                progress = train(job, progress)
            except BaseException as error:  # also KeyboardInterrupt: the events record every failure
                events.append({"event": "failed", "error": str(error) or type(error).__name__})
                raise
            not_scheduled = run_delay.fraction()
            clock = measure_clock_offset(group.untraced)
            result = _finish(built, folder, progress, notes, job)
            end = {"event": "end", "status": result.status, "step": progress.step, "time_ns": time.time_ns()}
            events.append(end | {"clock": clock._asdict(), "not_scheduled": not_scheduled})
            if first:
                events.flush()  # a result without the end of its run would count as damage
                folder.write_result(asdict(result))
    return result


def _events(folder: RunFolder, group: Group, resumed: RunFolder | None) -> EventFile:
    """This worker's event file. In a resumed run it is opened once rank 0 holds the folder: another may be using it."""
    if resumed:
        share_text(group, "held")
    return EventFile(folder.events(group.rank))


def _restore(built: Built, random: RandomState, folder: RunFolder) -> checkpoint.Checkpoint:
    built.group.beat(BUSY_S)
    samples, batch_size = len(built.data.train), built.batch_size
    saved = checkpoint.latest(folder.checkpoints, lambda progress: progress.check_fits(samples, batch_size))
    pieces = saved.pieces()
    built.strategy.load(pieces)
    random.load(pieces)
    return saved


def _new_folder(config: RunConfig, group: Group) -> tuple[RunFolder, str]:
    """The folder that rank 0 creates, and the run's id that it draws, on every worker."""
    made = ""
    if group.rank == 0:
        folder = create(Path(config.output.dir), config.output.name, _automatic_name(config))
        made = f"{secrets.token_hex(8)} {folder.path}"
    run_id, _, path = share_text(group, made).partition(" ")
    return RunFolder(Path(path)), run_id


@dataclass
class _Notes:
    """Writes what the loop produces: checkpoints, validations, events."""

    built: Built
    random: RandomState
    folder: RunFolder
    run_id: str
    events: EventFile
    observer: Observer
    validation: Metrics | None = None
    unusable_checkpoints: tuple[str, ...] = ()

    def restored(self, saved: checkpoint.Checkpoint | None) -> None:
        """Report newer checkpoints that could not be used."""
        if saved is not None and saved.fallback:
            self.unusable_checkpoints = saved.passed_over
            self.events.append(
                {"event": "fallback", "unusable": saved.passed_over, "used": saved.progress.step}
            )
            if self.built.group.rank == 0:
                warnings.warn(saved.fallback, stacklevel=2)

    def started(self, progress: Progress, links: Sequence[Measured], clock: ClockOffset) -> None:
        built = self.built
        record = {
            "event": "start",
            "step": progress.step,
            "run_id": self.run_id,
            "rank": built.group.rank,
            "time_ns": time.time_ns(),
            "total_steps": built.total_steps,
        }
        self.events.append(
            record
            | {"strategy": built.config.strategy, "workers": built.workers}
            | {"version": __version__, "torch": torch.__version__, "device": str(built.device)}
            | {"threads": torch.get_num_threads(), "host": platform.node(), "clock": clock._asdict()}
        )
        for link in links if built.group.rank == 0 else ():
            self.events.append(link_event(link))
        self.observer.started(built.config, self.folder, progress, built.total_steps, str(built.device))

    def chose(self, choice: Choice) -> None:
        """Record why the workers chose their codec; each stage of a pipeline chooses for itself."""
        built = self.built
        if built.strategy.data_rank == 0:
            step = built.training_clock.step
            self.events.append(choice.record() | {"step": step, "time_ns": time.time_ns()})
        if built.group.rank == 0:
            text = f"compressed:auto chose {choice.chosen.name}: {choice.reason}"
            warnings.warn(text, CodecNotice, stacklevel=2)

    def save(self, progress: Progress) -> None:
        built = self.built
        built.group.beat(BUSY_S)  # writing may be slow
        self.events.flush(to_disk=True)
        pieces = built.strategy.pieces() + self.random.pieces()
        keep = built.config.checkpoint.keep
        checkpoint.save(self.folder.checkpoints, pieces, progress, keep, built.group, self.run_id)
        if built.config.checkpoint.first_step and progress.step == 1:
            state = WholeTensors(built.strategy.pieces(), built.group, prefix=("model.", "optim."))
            export_model(self.folder.first_step, state, built.group.rank == 0, {})
        self.events.append({"event": "checkpoint", "step": progress.step, "time_ns": time.time_ns()})
        self.observer.saved(progress)

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        if metrics:
            self.validation = metrics
            self.events.append(
                {"event": "validation", "step": progress.step, "epoch": progress.epoch, **metrics.record()}
            )
        self.observer.validated(progress, metrics)


def _job(
    built: Built, notes: _Notes, stop: StopRequest, log: StepLog, progress: Progress, limit: MemoryLimit
) -> Job:
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
        saves_first_step=built.config.checkpoint.first_step,
        save=notes.save,
        stop_signal=lambda: stop.signal or 0,
        is_alone=built.group.size == 1,
        validated=notes.validated,
        measures=built.measures,
        best=built.best,
        training_clock=built.training_clock,
        log=log,
        span=built.span,
        random=notes.random,
        record=notes.events.append,
        balance=balance_of(built, progress, notes.events.append),
        pruning=_pruning(built, notes),
        memory=limit.built(built.data, notes.events.append),
    )


def _pruning(built: Built, notes: _Notes) -> Pruning | None:
    prune = built.config.prune
    if built.masks is None or not isinstance(prune, WeightPruneConfig):
        return None
    schedule = CubicSchedule.of(prune.begin, prune.end, prune.every, built.total_steps)
    rewound, model = built.starting_point.rewound, built.layout.model
    rewind = None if rewound is None else lambda: load_weights(model, rewound())
    return Pruning(built.masks, schedule, notes.events.append, rewind)


def _description(built: Built) -> ModelDescription:
    data = built.data
    return ModelDescription.of(built.config, data.input_shape, data.outputs, built.starting_point.widths)


def _write_network(built: Built, folder: RunFolder) -> None:
    title = f"{built.config.model.name} with channels removed, written by shoal {__version__}."
    write_network(folder, _description(built), built.layout.model, built.sample, title)


def _sent(built: Built, log: StepLog) -> list[int]:
    """What a worker sent in all steps, and what of it did not travel: means over the workers. A collective."""
    numbers, group = torch.tensor([log.sent_bytes, log.mapped_bytes]), built.group.untraced
    group.all_reduce(numbers).wait()
    workers = group.size - built.config.num_servers
    return [round(number / workers) for number in numbers.tolist()]


def _finish(built: Built, folder: RunFolder, progress: Progress, notes: _Notes, job: Job) -> Result:
    """Evaluate and export the model, and return the result; for a stopped run, only compute the fingerprint."""
    group, strategy, data, config = built.group, built.strategy, built.data, built.config
    done = job.is_done(progress)
    bytes_sent, bytes_mapped = _sent(built, job.log)
    test, validation = None, notes.validation
    # A worker that serves answers the others until all have met below.
    evaluates = done and not strategy.serves
    if evaluates and config.train.test:  # the only time that the test set is read
        test = evaluate(strategy.evaluate, data, data.test, strategy.copies, built.measures)
    if evaluates and validation is None and data.validation is not None:
        # The run was stopped after its last step, before the validation.
        validation = evaluate(strategy.evaluate, data, data.validation, strategy.copies, built.measures)
    if done:
        wholes = WholeTensors(strategy.pieces(), group)
        settings = {"shoal": sealed(to_toml(config))}
        if built.starting_point.widths:
            settings["model"] = _description(built).to_json()
        if built.masks is not None and group.rank == 0:
            write_masks(folder, built.masks)
        sha256 = export_model(folder.model, wholes, group.rank == 0, settings).shared(group)
    else:
        sha256 = weights_sha256(strategy.pieces(), group)
    strategy.close()
    samples = progress.epoch * len(data.train) + progress.consumed
    totals = group.totals if group.size > 1 else {}
    return Result(
        status="completed" if done else "interrupted",
        strategy=config.strategy,
        workers=built.workers,
        rank=group.rank,
        epochs=progress.epoch,
        steps=progress.step,
        final_loss=progress.final_loss(),
        test_loss=test.loss if test else None,
        test_accuracy=test.accuracy if test else None,
        validation_loss=validation.loss if validation else None,
        validation_accuracy=validation.accuracy if validation else None,
        test_metrics=test.metrics if test else None,
        validation_metrics=validation.metrics if validation else None,
        best=job.best.record(progress) if job.best else None,
        stopped_early=done and progress.step < built.total_steps,
        seconds=round(progress.seconds, 6),
        samples_per_s=round(samples / progress.seconds, 3) if progress.seconds else 0.0,
        bytes_sent=bytes_sent,
        bytes_mapped=bytes_mapped,
        wait_s=round(sum(total.blocked_ns for total in totals.values()) / 1e9, 6),
        weights_sha256=sha256,
        run=str(folder.path),
        device=str(built.device),
        stopped_by=None if done else job.stopped_by,
        unusable_checkpoints=notes.unusable_checkpoints,
        server=strategy.summary() or None,
        codec=built.exchange.chosen if isinstance(built.exchange, Auto) else None,
        sparsity=None if built.masks is None else round(built.masks.sparsity, 6),
        masks_sha256=None if built.masks is None else built.masks.sha256(),
        run_id=notes.run_id,
    )


def _automatic_name(config: RunConfig) -> str:
    names = [choice.name.rpartition(":")[2] for choice in (config.model, config.optimizer, config.data)]
    return f"{'-'.join(names)}-{datetime.now():%Y%m%d-%H%M%S}"
