"""The training loop: the file to read first.

A run is three nested things. An *epoch* goes once through the training set in an order that is a pure function of
(seed, epoch). A *step* takes the next `batch_size` samples of that order, hands this worker its share of them, as the
*division* says, and lets the strategy make an update of it. A *part* is as much of a share as goes through the model at
once.

    epoch 0: ├── step 0 ──┼── step 1 ──┼── step 2 ─┤        consumed counts the samples of the epoch
    epoch 1: ├── step 3 ──┼── …

All that is needed to go on later is `Progress` and the strategy's pieces: nothing here remembers anything else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from shoal.comm.group import Group
from shoal.data.dataset import Batch, DataSet
from shoal.data.division import Division
from shoal.events.spans import SpanRecorder
from shoal.parallel.now import Now
from shoal.parallel.strategy import Share, Strategy
from shoal.train.balance import Balance
from shoal.train.evaluate import Metrics, evaluate
from shoal.train.progress import Progress
from shoal.train.steplog import StepLog


@dataclass(frozen=True)
class Job:
    """What the loop is handed: everything built, nothing global."""

    data: DataSet
    strategy: Strategy
    lr: Callable[[int], float]
    """The learning rate of each step."""
    division: Callable[[Progress], Division]
    """Who takes which samples of the epoch in progress."""
    seed: int
    batch_size: int
    """Samples of one step, over all workers together."""
    micro_batch: int
    """Most samples in one forward pass."""
    total_steps: int
    save_every: int | None
    """Steps between two checkpoints; none: at the end of every epoch."""
    save: Callable[[Progress], None]
    should_stop: Callable[[], bool]
    validated: Callable[[Progress, Metrics | None], None]
    group: Group
    """The workers that train together."""
    now: Now
    """The step in progress, for what depends on it."""
    log: StepLog
    span: SpanRecorder
    balance: Balance | None = None
    """Divides batches by measured speed, if asked."""


def train(job: Job, progress: Progress) -> Progress:
    """Train from `progress` to the last step, or until asked to stop; the state is saved at either end."""
    while progress.step < job.total_steps and not job.should_stop():
        progress = train_epoch(job, progress)
        if progress.consumed == len(job.data.train):
            progress = end_epoch(job, progress)
    job.save(progress)
    return progress


def train_epoch(job: Job, progress: Progress) -> Progress:
    """The steps that are left of this epoch."""
    num_samples = len(job.data.train)
    progress = progress.among(job.strategy.data_size)
    division = job.division(progress)

    while progress.consumed < num_samples and progress.step < job.total_steps and not job.should_stop():
        job.log.begin(progress.step)
        job.now.step = progress.step
        count = min(job.batch_size, num_samples - progress.consumed)
        mine = division.step(progress.epoch, progress.consumed, count, job.strategy.data_rank)
        share = Share(parts_of(job, mine, progress.epoch), count, len(mine))
        lr = job.lr(progress.step)

        result = job.strategy.step(share, lr)

        if job.balance is not None:
            job.balance.stepped(progress.step, len(mine))
        progress = progress.after_step(count)
        progress = job.log.step(progress, result, count, lr)
        if job.save_every and progress.step % job.save_every == 0:
            progress = job.log.settle(progress)
            job.save(progress)
            job.log.restart_clock()
    return job.log.settle(progress)


def parts_of(job: Job, mine: Tensor, epoch: int) -> Iterator[Batch]:
    """This worker's samples of a step, in parts small enough for one forward pass."""
    # A small batch may leave a worker without samples.
    for indices in mine.split(job.micro_batch) if len(mine) else ():
        with job.span("batch", "data"):
            batch = job.data.training_batch(indices, job.seed, epoch)
        yield batch


def end_epoch(job: Job, progress: Progress) -> Progress:
    """Validate, if samples were held out for it, and save, unless the user chose the steps for that."""
    progress = progress.after_epoch()
    held_out = job.data.validation
    job.validated(
        progress,
        evaluate(job.strategy.evaluate, job.data, held_out, job.group) if held_out is not None else None,
    )
    if job.save_every is None:
        job.save(progress)
    job.log.restart_clock()
    return progress
