"""Widths: a shrunk network as data (`model.json`), and the network rebuilt from it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shoal import models
from shoal.config.custom import from_file, trusted
from shoal.config.read import from_tree
from shoal.config.schema import RunConfig
from shoal.config.write import flat
from shoal.errors import CheckpointError, ShoalError
from shoal.files import read_text
from shoal.models.transformer import Attention

Widths = dict[str, dict[str, int]]
"""By the name of a layer, the sizes that differ from the model's: {"conv1": {"out_channels": 3}}."""

Shapes = Callable[[Any], dict[str, tuple[int, ...]]]


def _linear(layer: nn.Linear) -> dict[str, tuple[int, ...]]:
    return {"weight": (layer.out_features, layer.in_features), "bias": (layer.out_features,)}


def _convolution(layer: nn.Conv2d) -> dict[str, tuple[int, ...]]:
    inputs = layer.in_channels // layer.groups
    return {"weight": (layer.out_channels, inputs, *layer.kernel_size), "bias": (layer.out_channels,)}


def _batch_norm(layer: nn.BatchNorm2d) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (layer.num_features,))


def _group_norm(layer: nn.GroupNorm) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("weight", "bias"), (layer.num_channels,))


SHAPES: dict[type[Any], tuple[tuple[str, ...], Shapes]] = {
    nn.Linear: (("in_features", "out_features"), _linear),
    nn.Conv2d: (("in_channels", "out_channels", "groups"), _convolution),
    nn.BatchNorm1d: (("num_features",), _batch_norm),
    nn.BatchNorm2d: (("num_features",), _batch_norm),
    nn.GroupNorm: (("num_channels", "num_groups"), _group_norm),
    Attention: (("heads",), lambda layer: {}),
}
"""By type, the attributes that are sizes, and the shapes of the layer's tensors that follow from them."""


def resize(model: nn.Module, widths: Mapping[str, Mapping[str, int]]) -> None:
    """Give layers other widths, in place. Their new tensors have no values yet: load weights next.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    >>> resize(model, {"0": {"out_features": 3}, "1": {"in_features": 3}})
    >>> model
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    layers = dict(model.named_modules())
    for name, sizes in widths.items():
        layer = layers.get(name)
        attributes, shapes = SHAPES.get(type(layer), ((), lambda layer: {}))
        for attribute, size in sizes.items():
            if attribute not in attributes or type(size) is not int or size < 1:
                raise CheckpointError(
                    f"the widths of the network do not fit this model: {name} cannot have {attribute} = {size!r}"
                )
            setattr(layer, attribute, size)
        for key, shape in shapes(layer).items() if layer is not None else ():
            old = getattr(layer, key)
            if old is not None:  # it is without bias, or without running statistics
                new = torch.empty(shape, dtype=old.dtype, device=old.device)
                is_param = isinstance(old, nn.Parameter)
                setattr(layer, key, nn.Parameter(new, old.requires_grad) if is_param else new)


FORMAT = 1


@dataclass(frozen=True)
class ModelDescription:
    """What a network is built from: the model's settings and shapes, and the widths that differ from it."""

    model: dict[str, Any]
    """The settings of the model, by name."""
    seed: int
    input_shape: tuple[int, ...]
    outputs: int
    widths: Widths
    format: int = FORMAT

    @classmethod
    def of(
        cls, config: RunConfig, input_shape: tuple[int, ...], outputs: int, widths: Widths
    ) -> "ModelDescription":
        """The description of a run's network."""
        model = {
            path.removeprefix("model."): setting
            for path, setting in flat(config).items()
            if path.startswith("model.")
        }
        return cls(model, config.seed, input_shape, outputs, widths)

    def to_json(self) -> str:
        """As text; the widths are first, for people."""
        record = asdict(self)
        return json.dumps({"widths": record.pop("widths"), **record}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, source: Path) -> "ModelDescription":
        """From text; a CheckpointError names the source if it is not a description."""
        try:
            record: dict[str, Any] = json.loads(text)
            if record["format"] != FORMAT:
                raise CheckpointError(
                    f"{source} has format {record['format']}; this version of shoal reads {FORMAT}"
                )
            widths = {str(name): dict(sizes) for name, sizes in dict(record["widths"]).items()}
            shape = tuple(int(size) for size in record["input_shape"])
            model = {str(key): setting for key, setting in dict(record["model"]).items()}
            return cls(model, int(record["seed"]), shape, int(record["outputs"]), widths)
        except ShoalError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{source} does not describe a network: {error!r}") from None


def rebuild(path: Path | str, trust_code: bool = False) -> nn.Module:
    """The network that a `model.json` describes, ready for `load_state_dict`.

    A model of the user's own, package.module:function, is built only with `trust_code`. The program `model.py` beside
    the file does the same without shoal.
    """
    path = Path(path)
    try:
        text = read_text(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    described = ModelDescription.from_json(text, path)
    tree = {"model": described.model}
    config = from_tree(trusted(tree) if trust_code else from_file(tree))
    model = models.build(config.model, described.input_shape, described.outputs, described.seed)
    resize(model, described.widths)
    return model
