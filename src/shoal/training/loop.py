"""The training loop: the file to read first.

A run has three nested levels. An *epoch* goes once through the training set, in an order that is a pure function of
(seed, epoch). A *step* takes the next `batch_size` samples of that order; the *division* assigns a share of them to
this worker, and the strategy computes an update from it. A *part* is the portion of a share that goes through the model
in one forward pass.

    epoch 0: ├── step 0 ──┼── step 1 ──┼── step 2 ─┤        consumed counts the samples of the epoch
    epoch 1: ├── step 3 ──┼── …

To resume a run, `Progress` and the pieces (of the strategy and of the random state) are sufficient.

Stopping needs no collective of its own: the stop signal enters the step with the share, and the result returns it, the
same on all workers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from shoal.data.dataset import Batch, DataSet
from shoal.data.division import Division
from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.models.measures import Measure
from shoal.parallel.strategy import Pause, Serving, Share, StepResult, Strategy, Turn
from shoal.parallel.sync.own_losses import agreed_loss
from shoal.parallel.training_clock import TrainingClock
from shoal.training.balance import Balance
from shoal.training.evaluation.best import BestEpoch
from shoal.training.evaluation.evaluate import Metrics, evaluate
from shoal.training.leaf_seeds import seeding
from shoal.training.memory.limit import MemoryLimit
from shoal.training.progress import Progress
from shoal.training.prune.pruning import Pruning
from shoal.training.random_state import RandomState
from shoal.training.steplog import StepLog


@dataclass(frozen=True)
class Job:
    """The inputs of the loop; there is no global state."""

    data: DataSet
    strategy: Strategy
    lr: Callable[[int], float]
    """The learning rate of each step."""
    division: Callable[[Progress], Division]
    """Assigns the samples of the current epoch to workers."""
    seed: int
    batch_size: int
    """Global batch size: samples per step over all workers."""
    micro_batch: int
    """Largest number of samples in one forward pass."""
    total_steps: int
    save_every: int | None
    """Steps between checkpoints; None: save after every epoch."""
    saves_first_step: bool
    """Whether to save after the first step, too."""
    save: Callable[[Progress], None]
    """Writes a checkpoint; a collective."""
    stop_signal: Callable[[], int]
    """The signal that this worker has received, 0 for none."""
    is_alone: bool
    """Whether there is one worker."""
    validated: Callable[[Progress, Metrics | None], None]
    training_clock: TrainingClock
    """The current step, for exchanges and faults that depend on it."""
    log: StepLog
    span: SpanRecorder
    random: RandomState
    record: Callable[[dict[str, Any]], None] = lambda record: None
    """Writes a record to this worker's events."""
    measures: Sequence[Measure] = ()
    """The metrics of a validation."""
    balance: Balance | None = None
    """Divides batches by measured speed (`--balance`)."""
    best: BestEpoch | None = None
    """Compares the epochs, where there is a validation set."""
    pruning: Pruning | None = None
    """Changes the masks of pruned weights (`--prune`)."""
    memory: MemoryLimit | None = None
    """Measures the memory of steps (`--memory.budget`)."""

    def is_save_due(self, step: int) -> bool:
        """Whether to save after `step` steps."""
        return (self.saves_first_step and step == 1) or (
            bool(self.save_every) and step % self.save_every == 0
        )

    def next_meeting(self, progress: Progress) -> int:
        """The step before which workers that take turns meet: the end of the epoch or of the run, or a checkpoint."""
        remaining = -(-(len(self.data.train) - progress.consumed) // self.batch_size)
        end = min(progress.step + remaining, self.total_steps)
        return next((step for step in range(progress.step + 1, end) if self.is_save_due(step)), end)

    @property
    def stopped_by(self) -> int:
        """The signal for which all workers stop now, 0 for none. A single worker need not wait for a step's result."""
        return self.log.stop_signal or (self.stop_signal() if self.is_alone else 0)

    def is_done(self, progress: Progress) -> bool:
        """Whether the run has made all its steps, or has waited long enough for a better epoch."""
        is_over = self.best is not None and self.best.is_over(progress)
        return progress.step >= self.total_steps or is_over


def train(job: Job, progress: Progress) -> Progress:
    """Train from `progress` to the last step, until no epoch gets better or until a stop signal; then save."""
    if job.strategy.serves:
        return serve(job, progress)
    while not job.is_done(progress) and not job.stopped_by:
        progress = train_epoch(job, progress)
        if progress.consumed == len(job.data.train):
            progress = end_epoch(job, progress)
    if job.memory is not None:
        job.memory.ended()
    return save(job, progress, is_end=True)


def train_epoch(job: Job, progress: Progress) -> Progress:
    """Train the remaining steps of this epoch."""
    num_samples = len(job.data.train)
    progress = progress.among(job.strategy.data_size)
    division = job.division(progress)
    if job.strategy.takes_turns:
        return train_by_turns(job, progress, division)

    while progress.consumed < num_samples and progress.step < job.total_steps and not job.stopped_by:
        job.log.begin(progress.step)
        job.training_clock.step = progress.step
        if job.pruning is not None:
            job.pruning.before_step(progress.step)
        if job.memory is not None:
            job.memory.before_step()
        count = min(job.batch_size, num_samples - progress.consumed)
        mine = division.step(progress.epoch, progress.consumed, count, job.strategy.data_rank)
        before_part = seeding(job.random, job.seed, division, progress, count, job.strategy.data_rank)
        share = Share(parts_of(job, mine, progress.epoch), count, len(mine), job.stop_signal(), before_part)
        lr = job.lr(progress.step)

        result = step(job, share, lr, progress.step)

        job.random.after_step(had_samples=len(mine) > 0)
        if job.balance is not None:
            job.balance.stepped(progress.step, len(mine))
        progress = progress.after_step(count)
        progress = job.log.step(progress, result, count, lr)
        # The checkpoint of an epoch's last step follows its validation (`end_epoch`).
        if job.is_save_due(progress.step) and progress.consumed < num_samples:
            progress = save(job, job.log.settle(progress))
            job.log.restart_clock()
    if job.memory is not None:
        job.memory.after_epoch()
    return job.log.settle(progress)


def step(job: Job, share: Share, lr: float, number: int) -> StepResult:
    """One update; an error about too few samples for batch norm says which batch is too small, and what to do."""
    try:
        return job.strategy.step(share, lr)
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel when training"):
            raise
        count, mine, total = share.num_samples_global, share.num_samples, len(job.data.train)
        least = 2 * job.strategy.data_size
        sizes = (size for size in range(least, total + 1) if not 0 < total % size < least)
        nearest = min(sizes, key=lambda size: abs(size - job.batch_size), default=None)
        if mine > 1:
            hint = "Compute larger parts: fewer micro-batches, or a larger --micro-batch."
        elif nearest is None:
            hint = f"Use fewer workers: {total} samples are too few for {job.strategy.data_size}."
        else:
            hint = (
                f"Use a batch size (--batch-size) of {nearest}: each batch of {total} samples then suffices."
            )
            hint += " Or normalise over all workers: --strategy.sync_batchnorm true (ddp, zero)." * (
                mine < count
            )
        raise ConfigError(
            f"batch norm needs 2 values per channel or more, and has 1 in step {number}: the batch has {count} "
            f"sample{'s' * (count > 1)}, and this worker's share is {mine}",
            hint,
        ) from error


def train_by_turns(job: Job, first: Progress, division: Division) -> Progress:
    """Train without waiting for other workers, up to the step where all meet: the end of the epoch, or a checkpoint.

    Each worker takes the next share that is free; of its own shares it knows the losses. All end after the same step.
    """
    num_samples = len(job.data.train)
    end = job.next_meeting(first)
    mine = replace(first, epoch_loss_sum=0.0)
    while isinstance(turn := job.strategy.next_turn(first.step, end), Turn):
        job.log.begin(turn.step)
        job.training_clock.step = turn.step
        if job.memory is not None:
            job.memory.before_step()
        at = first.ahead(turn.step, job.batch_size, num_samples)
        count = min(job.batch_size, num_samples - at.consumed)
        indices = division.step(at.epoch, at.consumed, count, turn.share)
        share = Share(parts_of(job, indices, at.epoch), count, len(indices), job.stop_signal())
        lr = job.lr(turn.step)

        result = step(job, share, lr, turn.step)

        job.random.after_step(had_samples=len(indices) > 0)
        counted = replace(mine, step=turn.step + 1, epoch=at.epoch)
        mine = job.log.step(counted, result, len(indices), lr)
    if job.memory is not None:
        job.memory.after_epoch()
    mine = job.log.settle(mine)
    job.log.stop_signal = job.log.stop_signal or turn.stop_signal
    reached = first.ahead(turn.step, job.batch_size, num_samples)
    of_all = agreed_loss(job.strategy.copies, mine.epoch_loss_sum, part=1.0)
    reached = replace(reached, epoch_loss_sum=first.epoch_loss_sum + of_all, seconds=mine.seconds)
    if job.is_save_due(reached.step) and reached.consumed < num_samples:
        reached = save(job, reached)
        job.log.restart_clock()
    return reached


def serve(job: Job, progress: Progress) -> Progress:
    """Serve the workers that train, log their steps, and save when they do, until they have finished."""

    def stepped(result: StepResult, num_samples: int, lr: float) -> None:
        nonlocal progress
        progress = job.log.step(progress.after_step(num_samples), result, num_samples, lr)
        if progress.consumed == len(job.data.train):
            progress = progress.after_epoch()

    def record(event: dict[str, Any]) -> None:
        job.record(event)
        job.log.discard()

    while True:
        pause = job.strategy.serve(Serving(job.stop_signal, stepped, record))
        progress = Progress(**pause.progress)
        job.log.stop_signal = job.log.stop_signal or pause.stop_signal
        job.save(progress)
        if pause.is_end:
            return progress
        job.log.restart_clock()


def save(job: Job, progress: Progress, is_end: bool = False) -> Progress:
    """Save a checkpoint, together with the workers that serve; returns the progress that all workers agree on."""
    job.strategy.consolidate()
    progress = progress.agreed(job.strategy.agree_on_loss)
    job.strategy.pause(Pause(asdict(progress), is_end, job.stopped_by))
    job.save(progress)
    return progress


def parts_of(job: Job, mine: Tensor, epoch: int) -> Iterator[Batch]:
    """This worker's samples of a step, in parts small enough for one forward pass."""
    # A small batch may leave a worker without samples.
    for indices in mine.split(job.micro_batch) if len(mine) else ():
        with job.span("batch", "data"):
            batch = job.data.training_batch(indices, job.seed, epoch)
        yield batch


def end_epoch(job: Job, progress: Progress) -> Progress:
    """Validate if there is a validation set; save, unless checkpoints are saved every few steps and this is no better.

    All workers have the same metrics, to the bit, so all agree on which epoch is the best and when to stop.
    """
    progress = progress.agreed(job.strategy.agree_on_loss).after_epoch()
    held_out = job.data.validation
    metrics = None
    if held_out is not None and job.best is not None:
        job.strategy.consolidate()
        metrics = evaluate(job.strategy.evaluate, job.data, held_out, job.strategy.copies, job.measures)
        progress = job.best.after(progress, metrics)
    job.validated(progress, metrics)
    is_best = progress.best_step == progress.step
    if job.save_every is None or is_best or job.is_save_due(progress.step):
        progress = save(job, progress)
    job.log.restart_clock()
    return progress
