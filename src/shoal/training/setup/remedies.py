"""What the settings of a run allow a user to do about numbers that are not finite."""

from dataclasses import replace
from typing import Any

from shoal.config.schema import RunConfig
from shoal.config.sections.exchange import RobustConfig
from shoal.errors import ConfigError
from shoal.strategies.guard import Remedies


def remedies_of(config: RunConfig) -> Remedies:
    """What a hint may offer: only settings that the run would accept, and does not have already."""
    train = config.train
    return Remedies(
        clips=train.clip_norm is None and _accepts(config, train=replace(train, clip_norm=1.0)),
        skips=_accepts(config, train=replace(train, on_nonfinite="skip")),
        exchanges=_accepts(config, exchange=RobustConfig()),
    )


def _accepts(config: RunConfig, **changes: Any) -> bool:
    try:
        replace(config, **changes)
    except ConfigError:
        return False
    return True
