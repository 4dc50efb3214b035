"""Checks a run against what the layouts of its mesh declare."""

import math

from shoal.config.checks.run_settings import RunSettings
from shoal.config.mesh import LAYOUT_AXES
from shoal.config.sections.layout import LayoutCapabilities
from shoal.errors import ConfigError


def check_layouts(config: RunSettings) -> None:
    """Refuse settings that a layout does not support, as it declares."""
    axes = config.axes
    for axis in (axis for axis, size in axes.items() if size > 1 and axis in LAYOUT_AXES):
        can: LayoutCapabilities = getattr(config, LAYOUT_AXES[axis]).CAN
        launch = config.launch
        refused = {
            f"--engine {config.engine}": config.engine not in can.engines,
            "--bottleneck": bool(launch.bottleneck) and not can.conditions,
            "--fault": bool(launch.fault) and not can.conditions,
            "--balance": config.train.balance and not can.balance,
            "--reduction invariant": config.train.reduction == "invariant" and not can.invariant,
            f"--prune {config.prune.name}": config.prune.name != "none",
            "--sync.sync_batchnorm": getattr(config.sync, "sync_batchnorm", False) and not can.sync_batchnorm,
        }
        for flag, is_refused in refused.items():
            if is_refused:
                raise ConfigError(
                    f"layout {LAYOUT_AXES[axis]} does not support {flag}",
                    f"Use --strategy ddp, or leave {flag.partition(' ')[0]} out.",
                )
        stage: int = getattr(config.sync, "stage", 1)
        if stage not in can.zero_stages:
            raise ConfigError(
                f"layout {LAYOUT_AXES[axis]} does not support --sync.stage {stage}: {can.on_zero_stages}",
                "Use --sync.stage 1, or --sync onecopy: one copy of the weights for all workers of a machine.",
            )
    if axes.get("pipeline", 1) > 1:
        config.pipeline.check_updates(axes.get("data", 1), config.train.clip_norm, config.train.on_nonfinite)
    if axes.get("pipeline", 1) > 1 and isinstance(config.train.batch_size, int):
        share = math.ceil(config.train.batch_size / axes.get("data", 1))
        config.pipeline.check_fits(axes["pipeline"], share, config.train.micro_batch)
    for axis, flag, given in (
        ("tensor", "--tensor.plan", config.tensor.plan),
        ("pipeline", "--pipeline.cut", config.pipeline.cut),
    ):
        if given and axis not in axes:
            raise ConfigError(
                f"{flag} has no effect without a {axis} axis",
                f"Use --strategy {axis}, or --mesh {axis}=2.",
            )
