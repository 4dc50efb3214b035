"""A network as a Python program: needs torch and safetensors, and nothing of ours."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.models.common import evaluation_mode

HEADER = '''"""{title}

    import model
    net = model.load("model.safetensors")
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F
'''

FOOTER = '''

def build() -> nn.Module:
    """The network, with initial weights."""
    return (
{network}
    )


def load(path: str) -> nn.Module:
    """The network with the weights of a safetensors file, in evaluation mode."""
    from safetensors.torch import load_file

    network = build()
    network.load_state_dict(load_file(path))
    return network.eval()
'''


def source_of(model: nn.Module, title: str, sample: Tensor) -> str:
    """The program. Layers of torch are written with their arguments, shoal's own as classes with their forward pass.

    A model with other layers is refused, by the name of the first. The program is tried on the inputs of a few samples:
    it computes what the model does, or is refused, too.
    """
    classes: dict[str, str] = {}
    network = _written(model, "", classes)
    program = HEADER.format(title=title) + "".join(classes.values())
    program += FOOTER.format(network=textwrap.indent(network, " " * 8))
    _check(program, model, sample)
    return program


def _written(module: nn.Module, path: str, classes: dict[str, str]) -> str:
    """The expression that constructs a module, over several lines where it has children."""
    kind = type(module)
    if kind is nn.Sequential:
        lines = [
            f"({name!r}, {_written(child, f'{path}.{name}', classes)})," for name, child in _children(module)
        ]
        return "nn.Sequential(OrderedDict([\n" + textwrap.indent("\n".join(lines), "    ") + "\n]))"
    if kind.__module__.startswith("torch.nn."):
        return f"nn.{_with_missing(module)}"
    if not kind.__module__.startswith("shoal."):
        raise ConfigError(
            f"cannot write {path.strip('.') or 'the model'} as a program: {kind.__name__} is not a layer of torch.nn"
        )
    name = kind.__qualname__
    fields = dict(_fields(module))
    # Two modules of ours have the same name: a block of resnet18 and one of the transformer are never in one model.
    if name not in classes:
        classes[name] = _class(kind, list(fields))
    arguments = [
        f"{key}={_written(value, f'{path}.{key}', classes) if isinstance(value, nn.Module) else repr(value)},"
        for key, value in fields.items()
    ]
    return f"{name}(\n" + textwrap.indent("\n".join(arguments), "    ") + "\n)"


def _with_missing(layer: nn.Module) -> str:
    """The representation of a torch layer: without the default `bias=True`, with `bias=False` if that is missing."""
    text = re.sub(r"\s+", " ", repr(layer)).replace(", bias=True", "")
    if getattr(layer, "bias", True) is None and "bias" not in text and "affine" not in text:
        text = f"{text[:-1]}, bias=False)"
    return text


def _fields(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module of ours is made of: its numbers, then its layers."""
    public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    yield from ((key, value) for key, value in public.items() if key != "training")
    yield from _children(module)


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of a module; `named_children` would leave out one that is used a second time."""
    for name, child in module._modules.items():  # pyright: ignore[reportPrivateUsage]
        if child is not None:
            yield name, child


def _class(kind: type[nn.Module], fields: list[str]) -> str:
    """A class with the same forward pass, whose constructor takes the layers."""
    forward = textwrap.dedent(inspect.getsource(cast(Any, kind).forward))
    sentence = (inspect.getdoc(kind) or kind.__name__).splitlines()[0]
    lines = [
        "",
        "",
        f"class {kind.__qualname__}(nn.Module):",
        f'    """{sentence}"""',
        "",
        f"    def __init__(self, {', '.join(fields)}) -> None:",
        "        super().__init__()",
        *(f"        self.{field} = {field}" for field in fields),
        "",
        textwrap.indent(forward, "    ").rstrip(),
        "",
    ]
    return "\n".join(lines)


@torch.no_grad()
def _check(program: str, model: nn.Module, sample: Tensor) -> None:
    """Refuse a program whose network computes something else: a layer's representation need not be its constructor."""
    namespace: dict[str, Any] = {"__name__": "model"}
    try:
        exec(compile(program, "model.py", "exec"), namespace)
        network: nn.Module = namespace["build"]().to(sample.device)
        network.load_state_dict(model.state_dict())
        with evaluation_mode(network), evaluation_mode(model):
            is_same = torch.allclose(network(sample), model(sample), rtol=1e-4, atol=1e-5)
    except (SyntaxError, NameError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"cannot write the model as a program: {str(error).splitlines()[0]}") from None
    if not is_same:
        raise ConfigError("cannot write the model as a program: the program computes something else")
