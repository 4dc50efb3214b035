"""The training loop: the file to read first.

A run has three nested levels. An *epoch* goes once through the training set, in an order that is a pure function of
(seed, epoch). A *step* takes the next `batch_size` samples of that order; the *division* assigns a share of them to
this worker, and the strategy computes an update from it. A *part* is the portion of a share that goes through the model
in one forward pass.

    epoch 0: ├── step 0 ──┼── step 1 ──┼── step 2 ─┤        consumed counts the samples of the epoch
    epoch 1: ├── step 3 ──┼── …

To resume a run, `Progress` and the pieces (of the strategy and of the random state) are sufficient.

What else a run does (pruning, events, checkpoints, …) are *hooks*: the loop names moments, and knows none of them.

Stopping needs no collective of its own: the stop signal enters the step with the share, and the result returns it, the
same on all workers.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from torch import Tensor

from shoal.data.dataset import Batch, Draw
from shoal.data.division import Division
from shoal.errors import NothingCountedError
from shoal.strategies.strategy import Pause, Serving, Share, StepResult, Turn, agreed_loss
from shoal.training.evaluation import evaluate
from shoal.training.progress import Progress
from shoal.training.run import Run


def train(run: Run, progress: Progress) -> Progress:
    """Train from `progress` to the last step, until no epoch gets better or until a stop signal; then save."""
    if run.strategy.serves:
        return serve(run, progress)
    while not run.is_done(progress) and not run.stopped_by:
        progress = train_epoch(run, progress)
        if progress.consumed == run.epoch_samples:
            progress = end_epoch(run, progress)
    for hook in run.hooks:
        hook.end()
    return save(run, progress, is_end=True)


def train_epoch(run: Run, progress: Progress) -> Progress:
    """Train the remaining steps of this epoch."""
    num_samples, rank = run.epoch_samples, run.strategy.data_rank
    progress = progress.among(run.strategy.data_size)
    division = run.division(progress)
    if run.strategy.takes_turns:
        return train_by_turns(run, progress, division)

    while progress.consumed < num_samples and progress.step < run.total_steps and not run.stopped_by:
        count = min(run.batch_size, num_samples - progress.consumed)
        mine = division.step(progress.epoch, progress.consumed, count, rank)
        run.data.train.read_ahead(
            partial(parts_ahead, run, progress, division), Draw(run.config.seed, progress.epoch)
        )
        result, lr = step(run, progress, mine, count)
        progress = run.log.step(progress.after_step(count), result, count, lr)
        # The checkpoint of an epoch's last step follows its validation (`end_epoch`).
        if run.is_save_due(progress.step) and progress.consumed < num_samples:
            progress = save(run, run.log.settle(progress))
            run.log.restart_clock()
    for hook in run.hooks:
        hook.after_steps()
    return run.log.settle(progress)


def train_by_turns(run: Run, first: Progress, division: Division) -> Progress:
    """Train without waiting for other workers, up to the step where all meet: the end of the epoch, or a checkpoint.

    Each worker takes the next share that is free; of its own shares it knows the losses. All end after the same step.
    """
    num_samples = run.epoch_samples
    end = run.next_meeting(first)
    own = replace(first, epoch_loss_sum=0.0)
    while isinstance(turn := run.strategy.next_turn(first.step, end), Turn):
        at = first.ahead(turn.step, run.batch_size, num_samples)
        count = min(run.batch_size, num_samples - at.consumed)
        mine = division.step(at.epoch, at.consumed, count, turn.share)
        result, lr = step(run, at, mine, count)
        own = run.log.step(replace(own, step=turn.step + 1, epoch=at.epoch), result, len(mine), lr)
    run.log.count_rest()
    for hook in run.hooks:
        hook.after_steps()
    own = run.log.settle(own)
    run.log.stop_signal = run.log.stop_signal or turn.stop_signal
    reached = first.ahead(turn.step, run.batch_size, num_samples)
    of_all = agreed_loss(run.strategy.copies, own.epoch_loss_sum, part=1.0)
    reached = replace(reached, epoch_loss_sum=first.epoch_loss_sum + of_all, seconds=own.seconds)
    if run.is_save_due(reached.step) and reached.consumed < num_samples:
        reached = save(run, reached)
        run.log.restart_clock()
    return reached


def step(run: Run, at: Progress, mine: Tensor, count: int) -> tuple[StepResult, float]:
    """Update the model with the next `count` samples, `mine` on this worker; return the result and the step's rate."""
    run.log.begin(at.step)
    run.training_clock.step = at.step
    for hook in run.step_hooks:
        hook.before_step(at, count)
    parts = parts_of(run, mine, at.epoch)
    share = Share(parts, count, len(mine), run.stop.signal, run.before_part, run.empty_batch)
    lr = run.lr(at.step)
    try:
        result = run.strategy.step(share, lr)
    except NothingCountedError as error:
        raise run.with_samples(error, mine, at.step) from error
    except ValueError as error:
        run.explain_batch_norm(error, share, at.step)
        raise
    for hook in run.step_hooks:
        hook.after_step(at.step, len(mine))
    return result, lr


def parts_ahead(run: Run, at: Progress, division: Division) -> Iterator[Tensor]:
    """The indices of the parts that this worker computes from here to the end of the epoch."""
    num_samples, rank = run.epoch_samples, run.strategy.data_rank
    for consumed in range(at.consumed, num_samples, run.batch_size):
        count = min(run.batch_size, num_samples - consumed)
        mine = division.step(at.epoch, consumed, count, rank)
        yield from mine.split(run.config.train.micro_batch) if len(mine) else ()


def parts_of(run: Run, mine: Tensor, epoch: int) -> Iterator[Batch]:
    """This worker's samples of a step, in parts small enough for one forward pass."""
    # A small batch may leave a worker without samples.
    for indices in mine.split(run.config.train.micro_batch) if len(mine) else ():
        with run.span("batch", "data"):
            batch = run.data.training_batch(indices, run.config.seed, epoch)
        yield batch


def serve(run: Run, progress: Progress) -> Progress:
    """Serve the workers that train, log their steps, and save when they do, until they have finished."""

    def stepped(result: StepResult, num_samples: int, lr: float) -> None:
        nonlocal progress
        progress = run.log.step(progress.after_step(num_samples), result, num_samples, lr)
        if progress.consumed == run.epoch_samples:
            progress = progress.after_epoch()

    def record(event: dict[str, Any]) -> None:
        run.events.append(event)
        run.log.discard()

    while True:
        pause = run.strategy.serve(Serving(lambda: run.stop.signal, stepped, record))
        progress = Progress(**pause.progress)
        run.log.stop_signal = run.log.stop_signal or pause.stop_signal
        for hook in run.hooks:
            hook.save(progress)
        if pause.is_end:
            return progress
        run.log.restart_clock()


def save(run: Run, progress: Progress, is_end: bool = False) -> Progress:
    """Save a checkpoint, together with the workers that serve; returns the progress that all workers agree on."""
    run.strategy.consolidate()
    progress = progress.agreed(run.strategy.agree_on_loss)
    run.strategy.pause(Pause(asdict(progress), is_end, run.stopped_by))
    for hook in run.hooks:
        hook.save(progress)
    return progress


def end_epoch(run: Run, progress: Progress) -> Progress:
    """Validate if there is a validation set; save, unless checkpoints are saved every few steps and this is no better.

    All workers have the same metrics, to the bit, so all agree on which epoch is the best and when to stop.
    """
    progress = progress.agreed(run.strategy.agree_on_loss).after_epoch()
    held_out = run.data.validation
    metrics = None
    if held_out is not None and run.best is not None:
        run.strategy.consolidate()
        metrics = evaluate(run.strategy.evaluate, run.data, held_out, run.strategy.copies, run.measures)
        progress = run.best.after(progress, metrics)
    for hook in run.hooks:
        hook.after_epoch(progress, metrics)
    is_best = progress.best_step == progress.step
    if run.config.checkpoint.every is None or is_best or run.is_save_due(progress.step):
        progress = save(run, progress)
    run.log.restart_clock()
    return progress
