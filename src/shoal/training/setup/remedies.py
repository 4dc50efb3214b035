"""What the settings of a run allow a user to do about numbers that are not finite."""

from shoal.config.schema import RunConfig, ServerConfig
from shoal.parallel.guard import Remedies


def remedies_of(config: RunConfig) -> Remedies:
    """What a hint may offer: only settings that the run would accept, and does not have already."""
    sync, train = config.sync, config.train
    # Workers cannot agree before an update inside the step or inside backward.
    inside = config.memory.step_in_backward or (
        config.pipeline.updates_inside and config.axes.get("pipeline", 1) > 1
    )
    compares_workers = not isinstance(sync, ServerConfig) or sync.repeats
    return Remedies(
        clips=config.can.clips and not inside and train.clip_norm is None,
        skips=not inside,
        exchanges=config.can.exchanges and compares_workers,
    )
