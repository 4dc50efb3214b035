"""The progress of a run: with the settings and the state, it determines all further steps."""

from dataclasses import dataclass, replace


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

    def among(self, workers: int) -> "Progress":
        """At the beginning of an epoch, set the number of workers; within one, change nothing."""
        return self if self.consumed else replace(self, divided_among=workers)

    def after_step(self, num_samples: int) -> "Progress":
        """Count one step. `settled` adds its loss and its time, on a GPU some steps later."""
        return replace(self, step=self.step + 1, consumed=self.consumed + num_samples)

    def settled(self, loss_sum: float, seconds: float) -> "Progress":
        """Add the losses and the time of finished steps."""
        return replace(self, epoch_loss_sum=self.epoch_loss_sum + loss_sum, seconds=self.seconds + seconds)

    def after_epoch(self) -> "Progress":
        """End the epoch; the next one starts at its first sample."""
        mean = self.epoch_loss_sum / self.consumed
        return replace(self, epoch=self.epoch + 1, consumed=0, epoch_loss_sum=0.0, last_epoch_loss=mean)

    def final_loss(self) -> float | None:
        """Mean training loss over the current epoch so far; between epochs, over the last one."""
        return self.epoch_loss_sum / self.consumed if self.consumed else self.last_epoch_loss


def total_steps(num_samples: int, batch_size: int, epochs: int, limit: int | None) -> int:
    """Number of steps of a run; the last batch of an epoch may be smaller.

    >>> total_steps(num_samples=100, batch_size=64, epochs=3, limit=None), total_steps(100, 64, 3, limit=5)
    (6, 5)
    """
    steps = epochs * -(-num_samples // batch_size)
    return steps if limit is None else min(steps, limit)
