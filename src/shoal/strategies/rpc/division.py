"""Which workers hold a stage of the model, and which layers are in it."""

from torch import nn

from shoal.errors import ConfigError
from shoal.strategies.pipeline.cut import NamedLayer, cut_by_name, cut_by_size


def stage_ranks(size: int) -> list[int]:
    """The workers that hold a stage: all but the driver, unless there are only two.

    >>> stage_ranks(2), stage_ranks(3), stage_ranks(4)
    ([0, 1], [1, 2], [1, 2, 3])
    """
    return [0, 1] if size == 2 else list(range(1, size))


def cut_for_rpc(model: nn.Module, names: str, num_workers: int) -> list[list[NamedLayer]]:
    """The stages of a model on so many workers: where the user says, else of about equal numbers of parameters."""
    num_stages = len(stage_ranks(num_workers))
    if not names:
        return cut_by_size(model, num_stages)
    stages = cut_by_name(model, [name.strip() for name in names.split(",")])
    if len(stages) != num_stages:
        raise ConfigError(
            f"--strategy.cut {names} makes {len(stages)} stages, but {num_workers} workers hold {num_stages}",
            f"Name {num_stages - 1} layer{'s' * (num_stages > 2)}, or use --workers {len(stages) + 1}.",
        )
    return stages
