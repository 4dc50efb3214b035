"""Batch sizes of a ds_config: train_batch_size = micro-batch per worker × accumulation steps × workers."""

import math

from shoal.config.deepspeed.keys import Keys
from shoal.config.read import Tree
from shoal.config.sections.values import Count
from shoal.errors import ConfigError

BATCH, MICRO, ACCUMULATION = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


def batches_of(keys: Keys, workers: int | None) -> tuple[Tree, Tree]:
    """The sections train and launch: global batch, micro-batch, number of workers.

    Accumulation needs no setting: a worker's share of a batch goes through the model in micro-batches.
    """
    if BATCH not in keys and MICRO not in keys:
        keys.remarks.add("open", BATCH, "not in the file; set train.batch_size, or keep its default")
    batch = keys.take(BATCH, Count, "train.batch_size")
    micro = keys.take(MICRO, Count, "train.micro_batch")
    steps = keys.take(ACCUMULATION, Count, "train.micro_batch")
    if batch is not None:
        workers = _consistent(batch, micro, steps, workers)
    consequence = ""
    if batch is None and micro is not None:
        batch = micro * (steps or 1) * (workers or 1)
        consequence = f", and train.batch_size is that of 1 worker ({batch})"
    elif batch is not None and micro is None and steps is not None:
        micro = None if workers is None else batch // (steps * workers)
        consequence = f", and train.micro_batch is {batch} / {steps} / workers: set it"
    if workers is None:
        keys.remarks.add(
            "open",
            "workers",
            f"their number is not in the file{consequence}; give it to this command: --workers N",
        )
    train = {"batch_size": batch, "micro_batch": micro}
    return (
        {name: value for name, value in train.items() if value is not None},
        {} if workers is None else {"workers": workers},
    )


def _consistent(batch: int, micro: int | None, steps: int | None, workers: int | None) -> int | None:
    """The number of workers, if it is known; an error if DeepSpeed would refuse the numbers."""
    factors = {MICRO: micro, ACCUMULATION: steps, "workers": workers}
    known = {name: factor for name, factor in factors.items() if factor is not None}
    product = math.prod(known.values())
    if batch % product or (len(known) == len(factors) and batch != product):
        problem = "is not" if len(known) == len(factors) else "is not a multiple of"
        shown = " × ".join(f"{name} ({factor})" for name, factor in known.items())
        raise ConfigError(
            f"{BATCH} ({batch}) {problem} {shown}{f' = {product}' if len(known) > 1 else ''}",
            f"DeepSpeed needs {BATCH} = {MICRO} × {ACCUMULATION} × workers: correct one of them.",
        )
    return batch // product if workers is None and micro is not None and steps is not None else workers
