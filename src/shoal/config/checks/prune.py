"""Checks pruning against the strategy, the exchange and the start of a run."""

from shoal.config.checks.run_settings import RunSettings
from shoal.config.kinds import either
from shoal.config.sections.exchange import StagesConfig
from shoal.config.sections.prune import WeightPruneConfig
from shoal.errors import ConfigError

STATELESS = ("all_reduce", "by", "robust")
"""Exchanges that keep nothing between steps, so that a bucket may become shorter."""


def check_prune(config: RunSettings) -> None:
    """Refuse pruning that the strategy or the exchange does not support."""
    prune, exchange = config.prune, config.exchange
    if prune.name == "none":
        return
    if not config.can.prunes:
        raise ConfigError(
            f"strategy {config.strategy} does not support --prune {prune.name}",
            "Use --strategy single, naive or ddp.",
        )
    if not isinstance(prune, WeightPruneConfig):
        return
    stages = [stage for _, stage in exchange.stages()] if isinstance(exchange, StagesConfig) else [exchange]
    for stage in stages:
        if stage.name not in STATELESS:
            raise ConfigError(
                f"--exchange {stage.name} does not support --prune {prune.name}: it may keep state for each weight, "
                "and pruned weights are no longer sent",
                f"Use --exchange {either(STATELESS)}.",
            )
    aggregate = getattr(config.sync, "aggregate", "gradients")
    if aggregate != "gradients":
        raise ConfigError(
            f"--aggregate {aggregate} does not support --prune {prune.name}", "Use --aggregate gradients."
        )
    if prune.rewind is not None and not config.train.start:
        raise ConfigError(
            f"prune.rewind {prune.rewind} needs a trained run to choose the masks from", "Add --start RUN."
        )
