"""Batches that are too small for batch norm: the error says which, and which batch size suffices."""

from shoal.errors import ConfigError
from shoal.strategies.strategy import Share
from shoal.training.run import Run


def explain_batch_norm(error: ValueError, run: Run, share: Share, step: int) -> None:
    """Raise an error with a remedy, if this is torch's error about too few samples for batch norm."""
    if not str(error).startswith("Expected more than 1 value per channel when training"):
        return
    count, mine, total = share.num_samples_global, share.num_samples, len(run.data.train)
    least = 2 * run.strategy.data_size
    sizes = (size for size in range(least, total + 1) if not 0 < total % size < least)
    nearest = min(sizes, key=lambda size: abs(size - run.batch_size), default=None)
    if mine > 1:
        hint = "Compute larger parts: fewer micro-batches, or a larger --micro-batch."
    elif nearest is None:
        hint = f"Use fewer workers: {total} samples are too few for {run.strategy.data_size}."
    else:
        hint = f"Use a batch size (--batch-size) of {nearest}: each batch of {total} samples then suffices."
        hint += " Or normalise over all workers: --strategy.sync_batchnorm true (ddp, zero)." * (mine < count)
    raise ConfigError(
        f"batch norm needs 2 values per channel or more, and has 1 in step {step}: the batch has {count} "
        f"sample{'s' * (count > 1)}, and this worker's share is {mine}",
        hint,
    ) from error
