"""A run of one worker: everything that it is made of. There is no global state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from shoal.comm.traced import Traced
from shoal.config.schema import RunConfig
from shoal.data.dataset import Batch, DataSet
from shoal.data.division import Division
from shoal.errors import ConfigError, NothingCountedError
from shoal.events.file import EventFile
from shoal.events.folder import RunFolder
from shoal.events.spans import SpanRecorder
from shoal.models.metrics import Measure
from shoal.prune.masks import WeightMasks
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.strategy import Share, Strategy, TrainingClock
from shoal.training.disks.disks import Disks
from shoal.training.evaluation import BestEpoch, Metrics
from shoal.training.hooks.hook import Hook
from shoal.training.hooks.random_state import RandomState
from shoal.training.observer import Observer
from shoal.training.progress import Progress
from shoal.training.steplog import StepLog
from shoal.training.stop import StopRequest


@dataclass(kw_only=True)
class Run:
    """Made by `build` from the settings; `worker` adds the folder and everything that is written to it."""

    config: RunConfig
    """The settings, completed while building, for example with the cuts of a pipeline."""
    device: torch.device
    data: DataSet
    identities: Sequence[str]
    """Of data of the user's own, what identifies the samples of each split: a resumed run is compared with it."""
    model: nn.Module
    """This worker's part of the model."""
    params: dict[str, Tensor]
    """Its trained parameters."""
    strategy: Strategy
    group: Traced
    """All workers of the run, and its servers; counts what this worker sends."""
    workers: int
    """Workers that train, as the run began."""
    span: SpanRecorder
    batch_size: int
    """Global batch size: samples per step over all workers."""
    epoch_samples: int
    """Samples of an epoch, which `--train.drop_last` makes fewer than the data set has."""
    total_steps: int
    """Steps of the whole run."""
    training_clock: TrainingClock
    """The current step, for exchanges and faults that depend on it."""
    division: Callable[[Progress], Division]
    """Assigns the samples of the current epoch to workers."""
    lr: Callable[[int], float]
    """The learning rate of each step."""
    exchange: Exchange
    """How this worker's copy of the model agrees with the others on gradients."""
    widths: dict[str, dict[str, int]]
    """The layers of a network that has shrunk; empty otherwise."""
    rewound: Callable[[], Mapping[str, Tensor]] | None
    """The weights to go back to once the masks are chosen, with `--prune.rewind`."""
    masks: WeightMasks | None
    """Which weights are kept, with `--prune magnitude` or `movement`."""
    measures: Sequence[Measure]
    """The metrics of evaluations, beside loss and accuracy."""
    best: BestEpoch | None
    """Compares epochs, where there is a validation set."""
    loss_scale: LossScale | None
    """The factor on the loss, with `--precision fp16`."""

    # From here on: of a run that has begun.
    folder: RunFolder = field(init=False)
    run_id: str = field(init=False)
    disks: Disks = field(init=False)
    """Which workers see the same run folder."""
    events: EventFile = field(init=False)
    """This worker's events."""
    observer: Observer = field(init=False)
    random: RandomState = field(init=False)
    log: StepLog = field(init=False)
    stop: StopRequest = field(default_factory=StopRequest)
    """The signal that this worker has received."""
    hooks: Sequence[Hook] = ()
    """Everything that the loop does not know by name."""
    step_hooks: Sequence[Hook] = ()
    """The hooks that act before or after a step, or before a part of one."""
    validation: Metrics | None = None
    """Of the last epoch that was validated."""
    unusable_checkpoints: tuple[str, ...] = ()
    """Faults of checkpoints newer than the checkpoint from which the run resumed."""

    @property
    def stopped_by(self) -> int:
        """The signal for which all workers stop now, 0 for none. A single worker need not wait for a step's result."""
        return self.log.stop_signal or (self.stop.signal if self.group.size == 1 else 0)

    def is_done(self, progress: Progress) -> bool:
        """Whether the run has made all its steps, or has waited long enough for a better epoch."""
        is_over = self.best is not None and self.best.is_over(progress)
        return progress.step >= self.total_steps or is_over

    def is_save_due(self, step: int) -> bool:
        """Whether to save after `step` steps."""
        saving = self.config.checkpoint
        return (saving.first_step and step == 1) or (saving.every is not None and step % saving.every == 0)

    def next_meeting(self, progress: Progress) -> int:
        """The step before which workers that take turns meet: the end of the epoch or of the run, or a checkpoint."""
        remaining = -(-(self.epoch_samples - progress.consumed) // self.batch_size)
        end = min(progress.step + remaining, self.total_steps)
        return next((step for step in range(progress.step + 1, end) if self.is_save_due(step)), end)

    def empty_batch(self) -> Batch:
        """A batch without samples."""
        return self.data.batch(self.data.train, torch.arange(0))

    def before_part(self, part: int) -> None:
        """Part number `part` of this worker's share begins."""
        for hook in self.step_hooks:
            hook.before_part(part)

    def with_samples(self, error: NothingCountedError, mine: Tensor, step: int) -> NothingCountedError:
        """The error with the samples of the step: this worker's, of which the sentence has the first few."""
        some = ", ".join(f"{index:,}" for index in mine[:5].tolist())
        more = f" and {len(mine) - 5:,} more" * (len(mine) > 5)
        whose = f"; rank {self.group.rank} has samples {some or 'none'}{more}"
        return NothingCountedError(f"step {step}: {error.message}{whose}", error.hint)

    def explain_batch_norm(self, error: ValueError, share: Share, step: int) -> None:
        """Raise an error with a remedy, if this is torch's error about too few samples for batch norm."""
        if not str(error).startswith("Expected more than 1 value per channel when training"):
            return
        count, mine, total = share.num_samples_global, share.num_samples, len(self.data.train)
        least = 2 * self.strategy.data_size
        sizes = (size for size in range(least, total + 1) if not 0 < total % size < least)
        nearest = min(sizes, key=lambda size: abs(size - self.batch_size), default=None)
        if mine > 1:
            hint = "Compute larger parts: fewer micro-batches, or a larger --micro-batch."
        elif nearest is None:
            hint = f"Use fewer workers: {total} samples are too few for {self.strategy.data_size}."
        else:
            hint = (
                f"Use a batch size (--batch-size) of {nearest}: each batch of {total} samples then suffices."
            )
            hint += " Or normalise over all workers: --strategy.sync_batchnorm true (ddp, zero)." * (
                mine < count
            )
            hint += " Or leave the last batch out: --train.drop_last true." * (count < self.batch_size)
        raise ConfigError(
            f"batch norm needs 2 values per channel or more, and has 1 in step {step}: the batch has {count} "
            f"sample{'s' * (count > 1)}, and this worker's share is {mine}",
            hint,
        ) from error
