"""A worker: trains what a config describes and writes a run folder. The same for every launcher."""

import secrets
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import torch

from shoal import __version__
from shoal.comm.agree import gather_texts, share_text
from shoal.comm.alone import alone
from shoal.comm.group import BUSY_S, Group
from shoal.comm.links.measure import Measured
from shoal.comm.traced import traced
from shoal.config.schema import RunConfig
from shoal.config.sections.prune import WeightPruneConfig
from shoal.config.write import sealed, to_toml
from shoal.data.division import ByLeaves, Global
from shoal.errors import ConfigError
from shoal.events.clocks import RunDelay
from shoal.events.file import EventFile
from shoal.events.folder import RunFolder, create, held, remove_unfinished, run_id_line, write_whole
from shoal.events.spans import Span
from shoal.files import delete
from shoal.prune.channels.widths import ModelDescription
from shoal.prune.masks import CubicSchedule
from shoal.strategies.exchange.auto import Auto
from shoal.strategies.pieces.state import load_weights
from shoal.strategies.pieces.whole_tensors import WholeTensors, weights_sha256
from shoal.training import checkpoint
from shoal.training.build import build, few_inputs, remedies_of, torch_settings
from shoal.training.disks.disks import Disks, find_disks
from shoal.training.disks.event_copies import EventCopies
from shoal.training.disks.latest import latest_of_all
from shoal.training.evaluation import evaluate
from shoal.training.hooks.balance import Balance
from shoal.training.hooks.hook import Hook
from shoal.training.hooks.random_state import LeafSeeds, RandomState
from shoal.training.hooks.records import Records
from shoal.training.loop import train
from shoal.training.memory.limits import nearest_limit
from shoal.training.memory.peak import MemoryLimit
from shoal.training.observer import Observer, Silent
from shoal.training.progress import Progress
from shoal.training.prune.pruning import Pruning
from shoal.training.result import Result
from shoal.training.run import Run
from shoal.training.setup.device import measure_clock_offset
from shoal.training.setup.links import with_links
from shoal.training.steplog import StepLog
from shoal.training.stop import StopRequest
from shoal.training.weights import export_model, write_masks, write_network

HooksOfRun = Callable[[Run], Sequence[Hook]]
"""Makes hooks that a caller adds to a run."""


def no_hooks(run: Run) -> Sequence[Hook]:
    """Adds none."""
    del run
    return ()


def run(
    config: RunConfig,
    observer: Observer | None = None,
    group: Group | None = None,
    resumed: RunFolder | None = None,
    hooks: HooksOfRun = no_hooks,
) -> Result:
    """Train in a new run folder, or resume a run from its newest checkpoint; with a group, as one of its workers.

    A resumed run has the same result as one that was never stopped.
    """
    group = group or alone()
    with torch_settings(config, group.rank) as device, StopRequest() as stop:
        return work(config, device, stop, observer or Silent(), group, resumed, hooks)


def work(
    config: RunConfig,
    device: torch.device,
    stop: StopRequest,
    observer: Observer,
    group: Group,
    resumed: RunFolder | None = None,
    hooks: HooksOfRun = no_hooks,
) -> Result:
    """Run one worker, a process or a thread: create links, build, train, evaluate and write the results.

    Errors in the settings are raised before the run folder is created. Rank 0 writes settings, weights and result; each
    worker writes its own events and its part of a checkpoint.
    """
    with with_links(group, config.launch) as (linked, measured):
        return _work(config, device, stop, observer, linked, measured, resumed, hooks)


def _work(
    config: RunConfig,
    device: torch.device,
    stop: StopRequest,
    observer: Observer,
    group: Group,
    links: Sequence[Measured],
    resumed: RunFolder | None,
    hooks: HooksOfRun,
) -> Result:
    calls = list[Span]()
    group = traced(group, calls.append)
    limit = MemoryLimit(config, device)
    run = build(config, device, group, resumed=resumed)
    stop.run_has_begun = True
    run.stop, run.observer = stop, observer
    by_threads = config.launch.launcher == "threads" and group.size > 1
    # The tensor axis varies fastest.
    random_rank, copy = divmod(group.rank, config.axes.get("tensor", 1))
    with (
        RandomState(config.seed, random_rank, by_threads, copy) as run.random,
        closing(run.data),
        _held_folder(run, resumed) as copies,
        EventFile(run.folder.events(group.rank)) as run.events,
    ):
        saved = _restore(run, resumed) if resumed else None
        progress = saved.progress if saved else Progress()
        first = group.rank == 0
        if run.disks.keeps(group.rank):
            write_whole(run.folder.config, sealed(run_id_line(run.run_id) + to_toml(run.config)))
            if run.widths and not resumed:
                _write_network(run)
        reads_late = device.type == "cuda" and not config.has_unequal_devices
        run.log = StepLog(
            run.events, run.span, calls, observer, reads_late, config.output.trace, remedies_of(run.config)
        )
        records = Records(run, copies)
        records.restored(saved)
        records.started(progress, links, measure_clock_offset(group.untraced))
        if isinstance(run.exchange, Auto):
            run.exchange.on_choice = records.chose
        run.step_hooks = [*hooks_of(run, progress, limit), *hooks(run)]
        run.hooks = [*run.step_hooks, records]
        run.log.restart_clock()  # what observers do when a run starts is no training
        run_delay = RunDelay()
        try:
            progress = train(run, progress)
        except BaseException as error:  # also KeyboardInterrupt: the events record every failure
            run.events.append({"event": "failed", "error": str(error) or type(error).__name__})
            raise
        not_scheduled, memory = run_delay.fraction(), nearest_limit()
        clock = measure_clock_offset(group.untraced)
        result = _finish(run, progress)
        end = {"event": "end", "status": result.status, "step": progress.step, "time_ns": time.time_ns()}
        end |= {"clock": clock._asdict(), "not_scheduled": not_scheduled, "memory": memory}
        run.events.append(end)
        copies.send(run.events)
        if first:
            run.events.flush()  # a result without the end of its run would count as damage
            run.folder.write_result(asdict(result))
    return result


def hooks_of(run: Run, progress: Progress, limit: MemoryLimit) -> list[Hook]:
    """The hooks that the settings ask for."""
    config, record, division = run.config, run.events.append, run.division(progress)
    # Before other hooks, so that nothing they draw counts as drawn by the model.
    hooks: list[Hook] = [run.random] if run.random.shared_by_threads else []
    if run.masks is not None and isinstance(config.prune, WeightPruneConfig):
        schedule = CubicSchedule.of(config.prune.begin, config.prune.end, config.prune.every, run.total_steps)
        rewound, model = run.rewound, run.model
        rewind = None if rewound is None else lambda: load_weights(model, rewound())
        hooks.append(Pruning(run.masks, schedule, record, rewind))
    if limit.begin(run.data, record):
        hooks.append(limit)
    if config.train.balance and isinstance(division, Global):
        hooks.append(Balance(division, run.strategy.copies, run.span, run.batch_size, record))
    if isinstance(division, ByLeaves):
        hooks.append(LeafSeeds(run.random, config.seed, division, run.strategy.data_rank))
    return hooks


@contextmanager
def _held_folder(run: Run, resumed: RunFolder | None) -> Generator[EventCopies]:
    """Make the run folder, or take that of the resumed run, and lock it, on every disk; a collective.

    Of a resumed run nothing is touched before rank 0 holds the folder, and nothing of a disk before its keeper does:
    another run may be using it.
    """
    group = run.group.untraced
    with ExitStack() as locks:
        if resumed:
            run.folder, run.run_id = resumed, resumed.run_id
            if group.rank == 0:
                locks.enter_context(held(run.folder))
            run.disks = find_disks(group, run.folder.path, lambda: None)
            _check_run_ids(run)
        else:
            run.folder, run.run_id, run.disks = _new_folder(run.config, group)
        is_keeper = run.disks.keeps(group.rank)
        if is_keeper and not (resumed and group.rank == 0):
            locks.enter_context(held(run.folder))
        if is_keeper and resumed:
            remove_unfinished(run.folder)
        copies = EventCopies(run.folder, group, run.disks)
        if resumed:
            copies.restore()
        yield copies


def _check_run_ids(run: Run) -> None:
    """Refuse to resume with the folders of different runs."""
    ids = gather_texts(run.group.untraced, run.run_id)
    if other := next((rank for rank, each in enumerate(ids) if each != ids[0]), 0):
        raise ConfigError(
            f"{run.folder.path} of {run.disks.name_of(other)} belongs to run {ids[other] or 'without an id'}, and of "
            f"{run.disks.name_of(0)} to run {ids[0] or 'without an id'}",
            "Move the other run away on that machine; the parts of this one are fetched from the others.",
        )


def _restore(run: Run, folder: RunFolder) -> checkpoint.Checkpoint:
    run.group.beat(BUSY_S)
    samples, batch_size = run.epoch_samples, run.batch_size

    def check(progress: Progress) -> None:
        progress.check_fits(samples, batch_size)

    if run.disks.is_one:
        saved = checkpoint.latest(folder.checkpoints, check)
    else:
        saved = latest_of_all(folder.checkpoints, run.group.untraced, run.disks, check)
    pieces = saved.pieces()
    run.strategy.load(pieces)
    run.random.load(pieces)
    if run.loss_scale is not None:
        run.loss_scale.load(pieces)
    return saved


def _new_folder(config: RunConfig, group: Group) -> tuple[RunFolder, str, Disks]:
    """The folder that rank 0 creates, on the disk of every worker, and the run's id that it draws."""
    made: list[RunFolder] = []

    def make(parent: Path, name: str, automatic: str = "") -> None:
        made.append(create(parent, name, automatic))

    text = ""
    if group.rank == 0:
        choices = (config.model, config.optimizer, config.data)
        names = "-".join(choice.name.rpartition(":")[2] for choice in choices)
        make(Path(config.output.dir), config.output.name, f"{names}-{datetime.now():%Y%m%d-%H%M%S}")
        text = f"{secrets.token_hex(8)} {made[0].path}"
    run_id, _, path = share_text(group, text).partition(" ")
    folder = RunFolder(Path(path))
    try:
        is_first = group.rank == 0
        disks = find_disks(
            group, folder.path, lambda: None if is_first else make(folder.path.parent, folder.path.name)
        )
    except ConfigError:  # on all workers
        for mine in made:
            delete(mine.path)
        raise
    if not disks.is_one and group.rank == 0:
        each = ", ".join(disks.name_of(keeper) for keeper in disks.ring)
        warnings.warn(
            f"the workers do not share a disk: {folder.path} is made {len(disks.ring)} times ({each}), and each part "
            "of a checkpoint is kept by two of them",
            stacklevel=2,
        )
    return folder, run_id, disks


def _description(run: Run) -> ModelDescription:
    return ModelDescription.of(run.config, run.data.input_shape, run.data.outputs, run.widths)


def _write_network(run: Run) -> None:
    title = f"{run.config.model.name} with channels removed, written by shoal {__version__}."
    write_network(run.folder, _description(run), run.model, few_inputs(run.data), title)


def _sent(run: Run) -> list[int]:
    """Bytes sent in all steps, and bytes that did not travel: means over the workers. A collective."""
    numbers, group = torch.tensor([run.log.sent_bytes, run.log.mapped_bytes]), run.group.untraced
    group.all_reduce(numbers).wait()
    workers = group.size - run.config.num_servers
    return [round(number / workers) for number in numbers.tolist()]


def _finish(run: Run, progress: Progress) -> Result:
    """Evaluate and export the model, and return the result; for a stopped run, only compute the fingerprint."""
    group, strategy, data, config = run.group, run.strategy, run.data, run.config
    done = run.is_done(progress)
    bytes_sent, bytes_mapped = _sent(run)
    test, validation = None, run.validation
    # A worker that serves answers the others until all have met below.
    evaluates = done and not strategy.serves
    if evaluates and config.train.test:  # the only time that the test set is read
        run.observer.evaluating(len(data.test))
        test = evaluate(strategy.evaluate, data, data.test, strategy.copies, run.measures)
    if evaluates and validation is None and data.validation is not None:
        # The run was stopped after its last step, before the validation.
        validation = evaluate(strategy.evaluate, data, data.validation, strategy.copies, run.measures)
    sha256 = _export(run) if done else weights_sha256(strategy.pieces(), group)
    strategy.close()
    samples = progress.epoch * run.epoch_samples + progress.consumed
    totals = group.totals if group.size > 1 else {}
    return Result(
        status="completed" if done else "interrupted",
        strategy=config.strategy,
        workers=run.workers,
        rank=group.rank,
        epochs=progress.epoch,
        steps=progress.step,
        final_loss=progress.final_loss(),
        test_loss=test.loss if test else None,
        test_accuracy=test.accuracy if test else None,
        validation_loss=validation.loss if validation else None,
        validation_accuracy=validation.accuracy if validation else None,
        test_metrics=test.metrics if test else None,
        test_samples=test.samples if test else None,
        validation_metrics=validation.metrics if validation else None,
        best=run.best.record(progress) if run.best else None,
        stopped_early=done and progress.step < run.total_steps,
        seconds=round(progress.seconds, 6),
        samples_per_s=round(samples / progress.seconds, 3) if progress.seconds else 0.0,
        bytes_sent=bytes_sent,
        bytes_mapped=bytes_mapped,
        compile_s=round(run.log.compile_s, 6),
        loss_scale=None if run.loss_scale is None else run.loss_scale.factor,
        left_out=None if run.loss_scale is None else run.loss_scale.left_out,
        wait_s=round(sum(total.blocked_ns for total in totals.values()) / 1e9, 6),
        weights_sha256=sha256,
        run=str(run.folder.path),
        device=config.device if config.has_unequal_devices else str(run.device),
        stopped_by=None if done else run.stopped_by,
        unusable_checkpoints=run.unusable_checkpoints,
        server=strategy.summary() or None,
        codec=run.exchange.chosen if isinstance(run.exchange, Auto) else None,
        sparsity=None if run.masks is None else round(run.masks.sparsity, 6),
        masks_sha256=None if run.masks is None else run.masks.sha256(),
        run_id=run.run_id,
    )


def _export(run: Run) -> str:
    """Write the weights, and the masks of pruned ones; the fingerprint of the weights. A collective."""
    group = run.group
    wholes = WholeTensors(run.strategy.pieces(), group)
    settings = {"shoal": sealed(to_toml(run.config))}
    if run.widths:
        settings["model"] = _description(run).to_json()
    if run.masks is not None and group.rank == 0:
        write_masks(run.folder, run.masks)
    return export_model(run.folder.model, wholes, group.rank == 0, settings).shared(group)
