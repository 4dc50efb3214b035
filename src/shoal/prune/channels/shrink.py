"""Remove channels: the network that is left, and masks that stand for the same removal."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.models.common import evaluation_mode
from shoal.prune.channels.choose import Kept, first_few, named
from shoal.prune.channels.groups import ChannelGroup, Use, has_derived_weight
from shoal.prune.channels.widths import Widths, resize

TOLERANCE = 1e-9
"""The largest relative difference between the outputs of the masked and of the shrunk network, in float64."""


@torch.no_grad()
def shrink(model: nn.Module, kept: Sequence[Kept], sample: Tensor) -> Widths:
    """Remove all channels that are not kept, in place; return the new widths.

    The layers that produce a removed channel, hold parameters for it or read it all shrink. A copy is tried first, on
    the inputs of a few samples: it computes what the network computes with the removed channels masked, or is refused,
    and the network stays as it was.
    """
    if not _computes_the_same(model, kept, sample):
        raise _refusal(model, kept, sample)
    return _remove(model, kept)


def _remove(model: nn.Module, kept: Sequence[Kept]) -> Widths:
    state, widths = dict(model.state_dict()), Widths()
    for group, channels in kept:
        if len(channels) == group.size:
            continue
        for use in group.uses:
            layer = model.get_submodule(use.layer)
            for name, dim in _tensors(layer, use):
                key = f"{use.layer}.{name}"
                state[key] = state[key].index_select(dim, _features(group, use, channels, state[key].device))
            sizes = widths.setdefault(use.layer, {})
            for attribute in _attributes(layer, use):
                old = sizes.get(attribute) or int(getattr(layer, attribute))
                sizes[attribute] = old * len(channels) // group.size
    resize(model, widths)
    model.load_state_dict(state)
    return widths


@torch.no_grad()
def channel_masks(model: nn.Module, kept: Sequence[Kept]) -> dict[str, Tensor]:
    """By parameter, False where a weight belongs to a channel that is removed."""
    masks: dict[str, Tensor] = {}
    params = dict(model.named_parameters())
    for group, channels in kept:
        for use in group.uses:
            layer = model.get_submodule(use.layer)
            for name, dim in _tensors(layer, use):
                key = f"{use.layer}.{name}"
                if key in params:
                    param = params[key]
                    stays = torch.zeros(param.shape[dim], dtype=torch.bool, device=param.device)
                    stays[_features(group, use, channels, param.device)] = True
                    shape = [-1 if each == dim else 1 for each in range(param.dim())]
                    mask = masks.setdefault(key, torch.ones_like(param, dtype=torch.bool))
                    mask &= stays.view(shape)
    return masks


@torch.no_grad()
def apply_masks(model: nn.Module, masks: dict[str, Tensor]) -> None:
    """Set every weight to zero that its mask does not keep."""
    for name, mask in masks.items():
        model.get_parameter(name).masked_fill_(~mask, 0.0)


def _tensors(layer: nn.Module, use: Use) -> Iterator[tuple[str, int]]:
    """The tensors of a layer that have a dimension of these channels, and that dimension."""
    if use.role == "in":
        yield "weight", 1
        return
    for name, tensor in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
        if tensor.dim() > 0:  # a count of batches has none
            yield name, 0


def _attributes(layer: nn.Module, use: Use) -> tuple[str, ...]:
    """The sizes of a layer that shrink with these channels."""
    if isinstance(layer, nn.Linear):
        return ("in_features",) if use.role == "in" else ("out_features",)
    if isinstance(layer, nn.Conv2d):
        if use.role == "each":
            return "in_channels", "out_channels", "groups"
        return ("in_channels",) if use.role == "in" else ("out_channels",)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        return ("num_features",)
    return ("num_channels", "num_groups") if isinstance(layer, nn.GroupNorm) else ("heads",)


def _features(group: ChannelGroup, use: Use, channels: Tensor, device: torch.device) -> Tensor:
    """The positions of channels in a dimension of a layer's tensor."""
    within = torch.arange(use.repeat, device=device)
    one = (channels.to(device).view(-1, 1) * use.repeat + within).view(-1)
    return torch.cat([one + block * group.size * use.repeat for block in range(use.blocks)])


def _computes_the_same(model: nn.Module, kept: Sequence[Kept], sample: Tensor) -> bool:
    """Whether a network without these channels computes what it does with them masked."""
    masked, shrunk = _copy(model), _copy(model)
    apply_masks(masked, channel_masks(masked, kept))
    try:
        expected = _outputs(masked, sample)
    except RuntimeError as error:
        raise ConfigError(
            "no channels can be removed from a model that cannot compute in float64, in which what is left of it is "
            f"compared: {str(error).splitlines()[0]}",
            "Leave the dtype to the parameters in forward, or prune single weights.",
        ) from error
    if not isinstance(expected, Tensor):
        raise ConfigError(
            f"no channels can be removed from a model that returns a {type(expected).__name__}: what is left of it is "
            "compared by its outputs, one tensor",
            "Return a tensor, or prune single weights.",
        )
    try:
        _remove(shrunk, kept)
        found = _outputs(shrunk, sample)
    except Exception:  # any exception: this runs the user's code, and with all channels it ran
        return False
    largest = expected.abs().max().clamp_min(1.0)
    return (
        isinstance(found, Tensor)
        and expected.shape == found.shape
        and bool(torch.isfinite(found).all())
        and bool((expected - found).abs().max() <= TOLERANCE * largest)
    )


def _outputs(model: nn.Module, sample: Tensor) -> object:
    model.double()
    with evaluation_mode(model):
        return model(sample.double() if sample.is_floating_point() else sample)


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        # Torch copies no tensor that was computed from parameters.
        derived = [name for name, module in model.named_modules() if has_derived_weight(module)]
        if not derived:
            raise
        raise ConfigError(
            f"no channels can be removed from a model that cannot be copied: {', '.join(derived[:3])} "
            f"{'computes its' if len(derived) == 1 else 'compute their'} weight from other parameters",
            "Use torch.nn.utils.parametrizations, or prune single weights.",
        ) from error


def _refusal(model: nn.Module, kept: Sequence[Kept], sample: Tensor) -> ConfigError:
    """Names the groups that cannot shrink: each is tried alone. If only all together fail, it is all of them."""
    can, cannot = list[str](), list[str]()
    for each in kept:
        (can if _computes_the_same(model, [each], sample) else cannot).append(named(each.group))
    used = first_few(cannot or can)
    return ConfigError(
        "the shrunk network does not compute what the masked one does: the model uses the channels of "
        f"{used} in a way that cannot be followed",
        f"Name layers that can shrink with a pattern of layers: {first_few(can)}."
        if can and cannot
        else "Name other layers with a pattern of layers, or prune single weights.",
    )
