"""Choose the channels to remove: those whose weights are smallest."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shoal.config.sections.prune import ChannelsConfig
from shoal.errors import ConfigError
from shoal.prune.channels.groups import OUTPUTS, ChannelGroup, Use, groups_of


class Kept(NamedTuple):
    """The channels of a group that stay, in order."""

    group: ChannelGroup
    channels: Tensor


def choose_channels(model: nn.Module, config: ChannelsConfig) -> list[Kept]:
    """What is kept of every group that can shrink and that the pattern matches.

    A channel's score bounds what it contributes: the root mean square of the weights that produce it (of the norm's
    scale, where it is normalised) times that of the weights that read it, over all layers of its group. Where groups
    are ranked together (`global`), scores are in units of their group's mean, because layers differ in scale.
    """
    groups = groups_of(model)
    free = [group for group in groups if not group.fixed]
    chosen = [group for group in free if any(fnmatchcase(layer, config.layers) for layer in group.producers)]
    if not chosen:
        can_shrink = ", ".join(layer for group in free for layer in group.producers)
        reasons = first_few(_fixed(groups)) or f"Of the only layer with channels, {OUTPUTS}"
        raise ConfigError(
            f"no layer whose channels can be removed matches '{config.layers}'",
            f"Layers that can shrink: {can_shrink}." if free else f"None can shrink. {reasons}.",
        )
    scores = [_scores(model, group) for group in chosen]
    if config.scope == "layer":
        masks = [_best(score, 1 - config.sparsity) for score in scores]
    else:
        mask = _best(
            torch.cat([score / score.mean().clamp_min(1e-30) for score in scores]), 1 - config.sparsity
        )
        masks = list(mask.split([len(score) for score in scores]))
    for group, mask in zip(chosen, masks, strict=True):
        if not mask.any():
            raise ConfigError(
                f"sparsity {config.sparsity:g} removes all {group.size} {group.kind} of {named(group)}",
                "Use a lower sparsity"
                + (", the same for every layer (scope layer)," if config.scope == "global" else "")
                + " or leave that layer out with a pattern of layers.",
            )
    return [
        Kept(group, mask.repeat_interleave(group.unit).nonzero().view(-1))
        for group, mask in zip(chosen, masks, strict=True)
    ]


def named(group: ChannelGroup) -> str:
    """The layers that produce a group's channels, a few of them by name.

    >>> named(ChannelGroup(3, uses=[]))
    ''
    """
    layers = group.producers
    return ", ".join(layers[:2]) + (f" and {len(layers) - 2} more" if len(layers) > 2 else "")


def fixed_parts(model: nn.Module) -> list[str]:
    """What cannot shrink, and why; the model's outputs, which must stay, are not in the list."""
    return _fixed(groups_of(model))


def _fixed(groups: list[ChannelGroup]) -> list[str]:
    return [f"{named(group)}: {group.fixed}" for group in groups if group.fixed not in ("", OUTPUTS)]


def first_few(texts: Sequence[str]) -> str:
    """The first three texts, and how many more there are."""
    return "; ".join(texts[:3]) + (f"; and {len(texts) - 3} more" if len(texts) > 3 else "")


@torch.no_grad()
def _scores(model: nn.Module, group: ChannelGroup) -> Tensor:
    """The score of every unit of a group."""
    norms = [use for use in group.uses if use.role == "each" and _has_scale(model.get_submodule(use.layer))]
    made_by = norms or [use for use in group.uses if use.role == "out"]
    read_by = [use for use in group.uses if use.role == "in"]
    score = _root_mean_squares(model, group, made_by) * _root_mean_squares(model, group, read_by)
    return score.view(-1, group.unit).mean(dim=1)


def _has_scale(layer: nn.Module) -> bool:
    """Whether a layer is a norm with a weight for each channel: then the scale of what it normalises has no effect."""
    return isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm) and layer.weight is not None  # pyright: ignore[reportUnnecessaryComparison]


def _root_mean_squares(model: nn.Module, group: ChannelGroup, uses: list[Use]) -> Tensor:
    """For every channel, the root mean square of the weights that these layers have for it."""
    squares, count = torch.zeros(group.size, dtype=torch.float64), 0
    for use in uses:
        weight = model.get_submodule(use.layer).get_parameter("weight").double().cpu()
        rows = weight.transpose(0, 1) if use.role == "in" else weight
        each = rows.reshape(use.blocks, group.size, -1).square()
        squares += each.sum(dim=(0, 2))
        count += each[:, 0].numel()
    return (squares / max(1, count)).sqrt()


def _best(scores: Tensor, part: float) -> Tensor:
    """True for this part of the scores, the largest; 2.5 of them are 3, where Python's `round` says 2."""
    order = scores.argsort(descending=True, stable=True)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[order[: int(part * len(scores) + 0.5)]] = True
    return mask
