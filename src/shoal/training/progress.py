"""The progress of a run: with the settings and the state, it determines all further steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from shoal.config.sections.train import TrainConfig
from shoal.errors import CheckpointError, ConfigError

COUNTS = ("step", "epoch", "consumed", "divided_among", "best_step", "best_epoch")
MAY_BE_NONE = ("last_epoch_loss", "best_value")
CENTURY_S = 3.2e9
"""No run takes longer."""


@dataclass(frozen=True)
class Progress:
    """Counters of a run. `consumed` counts samples of the current epoch, so any number of workers can resume it."""

    step: int = 0
    epoch: int = 0
    consumed: int = 0
    epoch_loss_sum: float = 0.0
    """Sum of the losses of the samples consumed in this epoch."""
    last_epoch_loss: float | None = None
    """Mean training loss over the last whole epoch."""
    seconds: float = 0.0
    """Time spent in training steps, over all attempts."""
    divided_among: int = 1
    """Number of workers when this epoch began; it determines the order of the samples for the whole epoch."""
    best_value: float | None = None
    """The best value of `--stop.metric` on the validation set so far."""
    best_step: int = 0
    """The step of its checkpoint; 0 before the first validation."""
    best_epoch: int = 0
    """The number of epochs after which it was measured."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Progress":
        """The progress that a checkpoint holds; an error if a value cannot be right."""
        unknown = record.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise CheckpointError(f"unknown progress '{min(unknown)}'")
        for name, value in record.items():
            least = 1 if name == "divided_among" else 0
            if name in COUNTS:
                is_valid = type(value) is int and least <= value < 2**63
            elif name == "seconds":
                is_valid = type(value) in (int, float) and 0 <= value < CENTURY_S
            else:
                is_valid = type(value) in (int, float) or (value is None and name in MAY_BE_NONE)
            if not is_valid:
                raise CheckpointError(f"progress '{name}' cannot be {str(value)[:40]}")
        return cls(**record)

    def check_fits(self, num_samples: int, batch_size: int) -> None:
        """Refuse progress that no run with this data and batch size can reach: its steps and samples disagree."""
        per_epoch = -(-num_samples // batch_size)
        expected = self.epoch * per_epoch + -(-self.consumed // batch_size)
        is_end_of_batch = self.consumed % batch_size == 0 or self.consumed == num_samples
        if self.consumed > num_samples or not is_end_of_batch or self.step != expected:
            raise CheckpointError(
                f"step {self.step}, epoch {self.epoch} and {self.consumed} samples of it do not fit together "
                f"with {num_samples} samples in batches of {batch_size}"
            )

    def among(self, workers: int) -> "Progress":
        """At the beginning of an epoch, set the number of workers; within one, change nothing."""
        return self if self.consumed else replace(self, divided_among=workers)

    def after_step(self, num_samples: int) -> "Progress":
        """Count one step. `settled` adds its loss and its time, on a GPU some steps later."""
        return replace(self, step=self.step + 1, consumed=self.consumed + num_samples)

    def ahead(self, step: int, batch_size: int, num_samples: int) -> "Progress":
        """The progress at a later step of the same epoch."""
        consumed = min(self.consumed + (step - self.step) * batch_size, num_samples)
        return replace(self, step=step, consumed=consumed)

    def settled(self, loss_sum: float, seconds: float) -> "Progress":
        """Add the losses and the time of finished steps."""
        return replace(self, epoch_loss_sum=self.epoch_loss_sum + loss_sum, seconds=self.seconds + seconds)

    def agreed(self, agree: Callable[[float], float]) -> "Progress":
        """With the losses of all workers, if this worker knows only its own so far."""
        return replace(self, epoch_loss_sum=agree(self.epoch_loss_sum))

    def after_epoch(self) -> "Progress":
        """End the epoch; the next one starts at its first sample."""
        mean = self.epoch_loss_sum / self.consumed
        return replace(self, epoch=self.epoch + 1, consumed=0, epoch_loss_sum=0.0, last_epoch_loss=mean)

    def final_loss(self) -> float | None:
        """Mean training loss over the current epoch so far; between epochs, over the last one."""
        return self.epoch_loss_sum / self.consumed if self.consumed else self.last_epoch_loss


def epoch_of(train: TrainConfig, num_samples: int) -> tuple[int, int]:
    """The samples of a batch, and of an epoch: of all batches, or with `--train.drop_last` of whole ones.

    >>> epoch_of(TrainConfig(batch_size=64), 100), epoch_of(TrainConfig(batch_size=64, drop_last=True), 100)
    ((64, 100), (64, 64))
    """
    batch_size = train.batch_size if isinstance(train.batch_size, int) else num_samples
    if not train.drop_last:
        return batch_size, num_samples
    if batch_size > num_samples:
        raise ConfigError(
            f"--train.drop_last leaves no batch: {num_samples:,} samples are fewer than a batch of {batch_size:,}",
            f"Use a batch size (--batch-size) of at most {num_samples}, or leave --train.drop_last out.",
        )
    return batch_size, num_samples - num_samples % batch_size


def total_steps(num_samples: int, batch_size: int, epochs: int, limit: int | None) -> int:
    """Number of steps of a run; the last batch of an epoch may be smaller.

    >>> total_steps(num_samples=100, batch_size=64, epochs=3, limit=None), total_steps(100, 64, 3, limit=5)
    (6, 5)
    """
    steps = epochs * -(-num_samples // batch_size)
    return steps if limit is None else min(steps, limit)
