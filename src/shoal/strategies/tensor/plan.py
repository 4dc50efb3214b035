"""Plans: which layer of a model is cut how, and the table of what each cut does to each kind of layer.

A plan maps the names of layers to cuts; layers that it leaves out stay whole on every worker. As a TOML file::

    fc1 = "column"                  # by outputs; the output stays divided for the next layer
    fc2 = "row"                     # by inputs, which are divided; the sum is whole
    head = "gather"                 # by outputs, which are gathered
    tokens = "row"                  # an embedding by words; "column" and "gather" cut it by width
    "blocks.*.norm1" = "divided"    # between column and row: BatchNorm2d, GroupNorm, Dropout
    "blocks.*.attention" = "heads"  # nn.MultiheadAttention, shoal's own, or a layer of nn.TransformerEncoder
    user_tower = "worker 0"         # not divided: worker 0 computes it alone, and the others receive its output

A `*` stands for one part of a name. Tables may be nested instead: `[blocks.0]` and `fc1 = "column"` below it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from shoal.comm.group import Group
from shoal.config.read import parse_toml
from shoal.errors import ConfigError, unknown
from shoal.files import read_text
from shoal.models.transformer import Attention
from shoal.nearest import did_you_mean
from shoal.strategies.tensor.attention import DividedMultiheadAttention, divided_layer, divided_stack
from shoal.strategies.tensor.convolution import (
    ColumnConv2d,
    DividedDropout,
    RowConv2d,
    divided_norm,
)
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear
from shoal.strategies.tensor.parts import Cut
from shoal.strategies.tensor.transformer import (
    ColumnEmbedding,
    RowEmbedding,
    divided_attention,
)

MOST_SHOWN = 12
"""Layers that an error lists."""
_ON_WORKER = re.compile(r"worker (\d{1,6})")


def read_plan(path: str) -> dict[str, str]:
    """The plan in a TOML file."""
    try:
        tree = parse_toml(read_text(Path(path)), Path(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"cannot read the plan {path}: {why}",
            'Give --tensor.plan the path of a TOML file such as: fc1 = "column"',
        ) from None
    plan = dict(_flattened(tree, path))
    if not plan:
        raise ConfigError(
            f"the plan {path} names no layer",
            'Write lines such as fc1 = "column", or leave out --tensor.plan.',
        )
    return plan


def _flattened(tree: Mapping[str, Any], path: str, prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flattened(value, path, f"{name}.")
        elif isinstance(value, str):
            yield name, str(value)
        else:
            raise ConfigError(
                f"{path}: {name} is {value!r}, expected the name of a cut",
                f'Write for example {name} = "column".',
            )


def worker_of(cut: str) -> int | None:
    """The worker that computes a module alone, for a cut such as `worker 1`; None for any other cut."""
    found = _ON_WORKER.fullmatch(cut)
    return int(found[1]) if found else None


def resolved(plan: Mapping[str, str], model: nn.Module, workers: int) -> dict[str, str]:
    """The cut of each layer that a plan names, in the model's order, checked.

    >>> from shoal.models.mlp import mlp
    >>> resolved({"fc2": "row", "fc1": "column"}, mlp(), workers=2)
    {'fc1': 'column', 'fc2': 'row'}
    """
    modules = {name: module for name, module in model.named_modules() if name}
    cuts: dict[str, str] = {}
    for pattern, cut in plan.items():
        matching = [name for name in modules if _matches(name, pattern)]
        if not matching:
            raise ConfigError(
                f"the plan cuts '{pattern}', but the model has no such layer{did_you_mean(pattern, list(modules))}",
                f"Its layers are: {', '.join(_shown(modules))}.",
            )
        for name in matching:
            if cuts.setdefault(name, cut) != cut:
                raise ConfigError(f'the plan cuts {name} twice: by "{cuts[name]}" and by "{cut}"')
    for name, cut in cuts.items():
        inside = next((outer for outer in cuts if name.startswith(f"{outer}.")), None)
        if inside is not None:
            raise ConfigError(
                f'the plan cuts {name}, and {inside}, which contains it, by "{cuts[inside]}"',
                "Leave one of them out.",
            )
        worker = worker_of(cut)
        if worker is None:
            check_cut(cut, modules[name], name)
        elif worker >= workers:
            raise ConfigError(
                f"the plan gives {name} to worker {worker}, but workers 0 to {workers - 1} divide the model",
                f"Use {worker + 1} workers (--mesh tensor={worker + 1}), or another worker.",
            )
    return {name: cuts[name] for name in modules if name in cuts}


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _shown(modules: Mapping[str, nn.Module]) -> list[str]:
    """Names of layers with parameters of their own, for an error."""
    own = [name for name, module in modules.items() if any(True for _ in module.parameters(recurse=False))]
    return [*own[:MOST_SHOWN], "…"] if len(own) > MOST_SHOWN else own


CUTS: dict[str, dict[type[nn.Module], Callable[[Any, Group, str], nn.Module]]] = {
    "column": {nn.Linear: ColumnLinear, nn.Conv2d: ColumnConv2d, nn.Embedding: ColumnEmbedding},
    "row": {nn.Linear: RowLinear, nn.Conv2d: RowConv2d, nn.Embedding: RowEmbedding},
    "gather": {
        nn.Linear: partial(ColumnLinear, gathers=True),
        nn.Conv2d: partial(ColumnConv2d, gathers=True),
        nn.Embedding: partial(ColumnEmbedding, gathers=True),
    },
    "divided": {
        nn.BatchNorm2d: divided_norm,
        nn.GroupNorm: divided_norm,
        nn.Dropout: DividedDropout,
        nn.Dropout2d: DividedDropout,
    },
    "heads": {
        Attention: divided_attention,
        nn.MultiheadAttention: DividedMultiheadAttention,
        nn.TransformerEncoderLayer: divided_layer,
        nn.TransformerDecoderLayer: divided_layer,
        nn.TransformerEncoder: divided_stack,
        nn.TransformerDecoder: divided_stack,
    },
}
"""The cuts, and the layers that each can divide: by a function of (whole layer, group, its name in the model).

It makes the layer that takes the place of the whole one on a worker. Its `cuts` say how its tensors are divided.
"""


def check_cut(cut: str, module: nn.Module, name: str) -> None:
    """Refuse a cut that does not exist, or that this kind of layer does not support."""
    if cut not in CUTS:
        raise ConfigError(
            f"the plan's cut of {name}: {unknown('cut', cut, [*CUTS, 'worker N'])}",
            "Layers that the plan leaves out stay whole on every worker.",
        )
    if type(module) not in CUTS[cut]:
        kinds = ", ".join(kind.__name__ for kind in CUTS[cut])
        kind = type(module).__name__
        kind = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
        fitting = [other for other, table in CUTS.items() if type(module) in table]
        raise ConfigError(
            f'the plan cuts {name}, {kind}, by "{cut}", which divides {kinds}',
            f"A{kind[1:]} can be cut by {' or '.join(fitting)}."
            if fitting
            else f"Leave {name} out of the plan.",
        )


def divided(cut: str, module: nn.Module, group: Group, name: str) -> tuple[nn.Module, Mapping[str, Cut]]:
    """This worker's part of a layer, and how its tensors are divided, by their names in the layer."""
    layer: Any = CUTS[cut][type(module)](module, group, name)
    return layer.train(module.training), layer.cuts
