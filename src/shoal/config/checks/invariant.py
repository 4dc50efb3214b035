"""What `--reduction invariant` requires: bits depend on everything that decides how a sum is rounded."""

from dataclasses import replace
from typing import TypeVar

from shoal.config.checks.run_settings import RunSettings
from shoal.config.sections.optimizer import OptimizerConfig
from shoal.config.sections.train import TrainConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError

FLAG = "--reduction invariant"

AnyOptimizer = TypeVar("AnyOptimizer", bound=OptimizerConfig)


def with_readable_step(optimizer: AnyOptimizer) -> AnyOptimizer:
    """The optimizer with its readable step, whose bits do not depend on how parameters are divided into slices."""
    return optimizer if isinstance(optimizer, Custom) else replace(optimizer, fast=False)


def check_invariant(config: RunSettings) -> None:
    """Refuse settings with which the bits would depend on the number of workers."""
    train, strategy = config.train, config.strategy
    if not config.can.invariant:
        raise ConfigError(
            f"strategy {strategy} does not support {FLAG}",
            "Use --strategy ddp, onecopy, zero, naive or single.",
        )
    if train.micro_batch == TrainConfig.micro_batch:
        raise ConfigError(
            f"{FLAG} requires --micro-batch: gradients are summed over micro-batches of one size for any number of "
            "workers",
            "Use --micro-batch 8, for example: a batch of 64 then has work for up to 8 workers.",
        )
    shares = next((each for each in config.launch.bottleneck if each.share is not None), None)
    refused = {
        f"--engine {config.engine}": (config.engine != "torch", "Use --engine torch."),
        f"--device {config.device}": (config.device != "cpu", "Use --device cpu."),
        f"--exchange {config.exchange.name}": (
            config.exchange.name != "all_reduce",
            "Remove --exchange: it would sum in another order.",
        ),
        f"--partition {config.partition.name}": (
            config.partition.name != "global",
            "Use --partition global: others depend on the number of workers.",
        ),
        "--balance": (train.balance, "Remove --balance: workers take whole micro-batches."),
        f"bottleneck '{shares}'": (shares is not None, "Remove its share: workers take whole micro-batches."),
        "--aggregate parameters": (
            getattr(config.sync, "aggregate", "gradients") != "gradients",
            "Use --aggregate gradients: parameters are averaged after the update, in no tree.",
        ),
        f"--combine {getattr(config.sync, 'combine', '')}": (
            getattr(config.sync, "combine", "exact") != "exact",
            "Use --combine exact: the others weight each worker's gradient.",
        ),
        "--combine-stages": (
            bool(getattr(config.sync, "combine_stages", ())),
            "Use --combine exact: the others weight each worker's gradient.",
        ),
        "--sync.sync_batchnorm": (
            getattr(config.sync, "sync_batchnorm", False),
            "Remove it: batch statistics depend on which samples are computed together.",
        ),
        f"optimizer {config.optimizer.name} with strategy {strategy}": (
            isinstance(config.optimizer, Custom) and not config.can.whole_weights,
            "Use --strategy ddp, or an optimizer of shoal: the bits of others may depend on the division of weights.",
        ),
    }
    for what, (is_refused, fix) in refused.items():
        if is_refused:
            raise ConfigError(f"{FLAG} does not support {what}", fix)


def check_power_of_two(workers: int) -> None:
    """Refuse numbers of workers that do not divide a balanced binary tree."""
    if workers & (workers - 1):
        below = 1 << workers.bit_length() - 1
        raise ConfigError(
            f"{FLAG} requires 1, 2, 4, 8, … workers, a power of two; you have {workers}",
            f"Use --workers {below} or {2 * below}.",
        )
