"""Cuts a model into stages: by measured cost, by size, or where the user says.

`layers_of` lists a model's layers in the order in which they are applied; a pipeline or an RPC model is cut between
them, and `check_order` shows on a few samples that they compute what the model does.

A stage is some consecutive layers. Measured cuts minimise the time of the slowest stage, because the slowest stage sets
the pace of a pipeline; a new stage then begins at a layer with parameters, so that activation functions and pooling
stay with the layer before them, and less is sent. A cut by hand may be between any two layers.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from shoal.comm.agree import share_text
from shoal.comm.group import BUSY_S, Group
from shoal.errors import ConfigError, unknown
from shoal.models.common import evaluation_mode, may_write_into_input
from shoal.nested import Nested, call, first, leaves, mapped
from shoal.strategies.gradient_engine import gradients_from
from shoal.strategies.pipeline.observe import Order


class NamedLayer(NamedTuple):
    """One step of the composition that a model computes."""

    name: str
    module: nn.Module


def must_observe(model: nn.Module, cut: Sequence[str]) -> bool:
    """Whether the order of layers has to be observed: the model does not declare it, or not inside of a cut's layer."""
    if not _declares_order(model):
        return True
    begins = [f"{layer.name}." for layer in layers_of(model)]
    modules = dict(model.named_modules())
    return _is_plain_sequence(model) and any(
        name in modules and not any(begin.startswith(f"{name}.") for begin in begins) for name in cut
    )


def _declares_order(model: nn.Module) -> bool:
    return _is_plain_sequence(model) or hasattr(model, "as_sequence")


def layers_of(model: nn.Module, order: Order | None = None) -> list[NamedLayer]:
    """The layers whose composition is the model's forward pass.

    `nn.Sequential` is taken apart, also where it is nested. Any other model declares its order: its method
    `as_sequence()` returns (name, module) pairs, and applying these modules one after the other must give what
    `forward` gives. The order of a model that does neither is observed. A module in which data takes several paths,
    such as a residual block, is one layer.

    >>> [name for name, _ in layers_of(nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 2), nn.ReLU())))]
    ['0', '1.0', '1.1']
    """
    if order is not None:
        return [layer for name in order.names for layer in _flat(name, model.get_submodule(name))]
    if not _declares_order(model):
        raise ConfigError(
            f"cannot cut {type(model).__name__} into stages: the order of its layers is unknown",
            "Make the model an nn.Sequential, or give it a method as_sequence() that returns (name, module) pairs. "
            "The order is observed where the model's input is one tensor, not a dictionary or a tuple; a program that "
            "calls shoal.Pipeline passes it as example=inputs.",
        )
    return list(_flat("", model))


def _flat(name: str, module: nn.Module) -> Iterator[NamedLayer]:
    prefix = f"{name}." if name else ""
    if _is_plain_sequence(module):
        # `named_children` would leave out a layer that is used a second time.
        for key, child in module._modules.items():  # pyright: ignore[reportPrivateUsage]
            if child is not None:
                yield from _flat(prefix + key, child)
    elif hasattr(module, "as_sequence"):
        for pair in cast(Any, module).as_sequence():
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], nn.Module)):
                raise ConfigError(
                    f"{type(module).__name__}.as_sequence() returned {type(pair).__name__} entries, "
                    "expected (name, module) pairs"
                )
            yield NamedLayer(prefix + pair[0], pair[1])
    else:
        yield NamedLayer(name, module)


def _is_plain_sequence(module: nn.Module) -> bool:
    """Whether calling the module is nothing but calling its children in order."""
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return False
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks  # pyright: ignore[reportPrivateUsage]
    return not any(hooks)


@torch.no_grad()
def check_order(model: nn.Module, stages: Sequence[Sequence[NamedLayer]], sample: Nested) -> None:
    """Refuse stages that do not compute what the model does, and outputs of a stage that cannot be sent.

    Tried on the inputs of a few samples, in evaluation mode.
    """
    given: dict[nn.Module, Any] = {}
    """The input of each layer in the model's own pass."""

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            given.setdefault(module, inputs[0].clone())  # a layer may write into its input

    with evaluation_mode(model):
        modules = {layer.module for stage in stages for layer in stage}
        hooks = [module.register_forward_pre_hook(enter) for module in modules]
        try:
            expected = call(model, sample)
        finally:
            for hook in hooks:
                hook.remove()
        value: Any = mapped(Tensor.clone, sample)
        previous = ""
        for stage in stages:
            if stage is not stages[0] and not isinstance(value, Tensor):
                raise ConfigError(
                    f"cannot cut after '{previous}': its output is a {type(value).__name__}, expected one tensor",
                    "Cut elsewhere: name the layers at which a stage begins. "
                    "Or make one module of the layers around it.",
                )
            for layer in stage:
                # Only the first use of a layer is compared: a layer may be used twice.
                _check_same(
                    given.pop(layer.module, value), value, model, f"the input of '{layer.name}'", previous
                )
                value, previous = layer.module(value), layer.name
        _check_same(expected, value, model, "the result", previous)


def _check_same(own: Any, value: Any, model: nn.Module, what: str, previous: str) -> None:
    if not (isinstance(own, Tensor) and isinstance(value, Tensor)):
        return
    first, second = own.double(), value.double()
    largest = first.abs().max().item() if own.numel() else 0.0
    if own.shape != value.shape or not torch.allclose(first, second, 1e-3, 1e-3 * largest, equal_nan=True):
        source = f"the output of '{previous}'" if previous else "the model's input"
        raise ConfigError(
            f"the layers of {type(model).__name__} in order do not compute what its forward pass does: "
            f"{what} is not {source}",
            "Make one module of layers with a skip connection, or with a function between them.",
        )


REPEATS = 3
"""Measurements of each layer; the shortest counts."""


def cut_by_name(model: nn.Module, names: Sequence[str], order: Order | None = None) -> list[list[NamedLayer]]:
    """The stages of a model, where a new stage begins at each of these layers.

    The name of an `nn.Sequential` inside the model stands for its first layer.

    >>> net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> [[name for name, _ in stage] for stage in cut_by_name(net, ["2"])]
    [['0', '1'], ['2']]
    """
    layers = layers_of(model, order)
    starts = [_position(model, layers, name, order) for name in names]
    if 0 in starts:
        raise ConfigError(
            f"cannot cut at '{names[starts.index(0)]}', the first layer: a stage begins there already",
            f"The layers in order: {_listed(layers)}.",
        )
    for (start, name), (after, later) in pairwise(zip((0, *starts), (layers[0].name, *names), strict=True)):
        if after <= start:
            raise ConfigError(
                f"the cut at '{later}' is not after '{name}': a stage would have no layers",
                f"The layers in order: {_listed(layers)}.",
            )
    return _stages(layers, starts)


def cut_by_cost(
    model: nn.Module, num_stages: int, group: Group, inputs: Nested, order: Order | None = None
) -> list[list[NamedLayer]]:
    """The stages of a model that take the same time, as nearly as possible, measured on rank 0 with these inputs.

    A collective: all workers of the group cut where rank 0 says.
    """
    layers = layers_of(model, order)
    allowed = possible_starts(layers, num_stages)
    text = ""
    if group.rank == 0:
        group.beat(BUSY_S)
        starts = balanced(measured_costs(layers, inputs), allowed, num_stages)
        text = ",".join(map(str, starts))
    return _stages(layers, [int(start) for start in share_text(group, text).split(",") if start])


def cut_by_size(model: nn.Module, num_stages: int) -> list[list[NamedLayer]]:
    """The stages of a model with the same number of parameters, as nearly as possible: for memory, not for time.

    lenet in two stages: the convolutions, and the fully connected layers.
    """
    layers = layers_of(model)
    allowed = possible_starts(layers, num_stages)
    sizes = [sum(param.numel() for param in layer.module.parameters()) for layer in layers]
    return _stages(layers, balanced(sizes, allowed, num_stages))


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


def measured_costs(layers: Sequence[NamedLayer], inputs: Nested) -> list[float]:
    """Seconds of forward and backward of each layer on these inputs. Changes neither weights nor statistics.

    In evaluation mode: batch statistics and the random state stay as they are.
    """
    costs: list[float] = []
    for _, module in layers:
        was_training = module.training
        module.eval()
        try:
            times: list[float] = []
            for _ in range(REPEATS):
                start_s = time.perf_counter()
                _forward_and_backward(module, inputs)
                times.append(time.perf_counter() - start_s)
            with torch.no_grad():
                inputs = module(mapped(Tensor.clone, inputs) if may_write_into_input(module) else inputs)
        finally:
            module.train(was_training)
        costs.append(min(times))
    return costs


def _forward_and_backward(module: nn.Module, inputs: Nested) -> None:
    leaf = mapped(lambda each: each.detach().requires_grad_(each.is_floating_point()), inputs)
    # A layer that writes into its input must not write into a leaf.
    given = mapped(Tensor.clone, leaf) if may_write_into_input(module) else leaf
    with torch.enable_grad():
        outputs = module(given)
    wanted = [*(each for _, each in leaves(leaf)), *module.parameters()]
    wanted = [each for each in wanted if each.requires_grad]
    if wanted and outputs.requires_grad:
        gradients_from(outputs, torch.ones_like(outputs), wanted)
    if first(leaf).is_cuda:
        torch.cuda.synchronize(first(leaf).device)


def balanced(costs: Sequence[float], allowed: Sequence[int], num_stages: int) -> list[int]:
    """Where stages 1, 2, … begin, so that the most expensive stage costs as little as possible.

    `allowed` are the layers at which a stage may begin. Among equal cuts the one with the smallest sum of squares wins,
    then the earliest: the same numbers always give the same cut. Costs O(stages · layers²).

    >>> balanced([1, 1, 1, 1, 4], allowed=[1, 2, 3, 4], num_stages=2)
    [4]
    >>> balanced([2, 1, 1, 1, 1], allowed=[1, 2, 3, 4], num_stages=3)
    [1, 3]
    """
    ends = [*allowed, len(costs)]
    # best[end]: (slowest stage, sum of squares, starts) of the layers before `end`, in the stages so far.
    best: dict[int, tuple[float, float, list[int]]] = {
        end: (sum(costs[:end]), sum(costs[:end]) ** 2, []) for end in ends
    }
    for _ in range(num_stages - 1):
        best = {
            end: min(
                (max(slowest, cost), squares + cost**2, [*starts, start])
                for start, (slowest, squares, starts) in best.items()
                if start < end
                for cost in (sum(costs[start:end]),)
            )
            for end in ends
            if any(start < end for start in best)
        }
    return best[len(costs)][2]


def possible_starts(layers: Sequence[NamedLayer], num_stages: int) -> list[int]:
    """The layers at which a measured cut may begin a stage: they have parameters to train, and tie none.

    Refuses a number of stages for which there are too few.
    """
    trained = [position for position, layer in enumerate(layers) if _is_trained(layer)]
    starts = [position for position in trained[1:] if _tied_across(layers, position) is None]
    if len(starts) < num_stages - 1:
        tied = " without separating tied weights" if len(starts) < len(trained) - 1 else ""
        raise ConfigError(
            f"cannot cut the model into {num_stages} stages{tied}: it has {len(trained)} "
            f"layer{'s' * (len(trained) != 1)} with parameters to train",
            f"Use {f'at most {len(starts) + 1} stages' if starts else 'data parallelism (ddp)'}, or a deeper model.",
        )
    return starts


def _stages(layers: Sequence[NamedLayer], starts: Sequence[int]) -> list[list[NamedLayer]]:
    for start in starts:
        tied = _tied_across(layers, start)
        if tied is not None and tied[0] == tied[1]:
            raise ConfigError(
                f"'{tied[0]}' runs before and after the cut at '{layers[start].name}', but belongs to one stage",
                "Cut elsewhere, or use a module of its own in each stage.",
            )
        if tied is not None:
            raise ConfigError(
                f"the cut at '{layers[start].name}' separates the tied weights of '{tied[0]}' and '{tied[1]}'",
                "Layers that share a parameter must be in one stage.",
            )
    stages = [list(layers[first:last]) for first, last in pairwise((0, *starts, len(layers)))]
    for number, stage in enumerate(stages):
        if not any(map(_is_trained, stage)):
            raise ConfigError(
                f"stage {number} ({_listed(stage)}) has no parameters to train",
                "Cut elsewhere, or use fewer stages.",
            )
    return stages


def _position(model: nn.Module, layers: Sequence[NamedLayer], name: str, order: Order | None) -> int:
    """The position of the layer of that name, or of the first layer in a sequence of that name."""
    found = [at for at, layer in enumerate(layers) if layer.name == name or layer.name.startswith(f"{name}.")]
    if order is not None and [layers[at].name for at in found].count(name) > 1:
        raise ConfigError(
            f"cannot cut at '{name}': it runs {len(found)} times, so it is no place in the order of the layers",
            f"Cut at another layer: {_listed(layers)}.",
        )
    if found:
        return found[0]
    around = next((layer.name for layer in layers if name.startswith(f"{layer.name}.")), None)
    if around is not None and name in dict(model.named_modules()):
        reason = "where data takes several paths (such as a skip connection)"
        if order is not None and around in order.reasons:
            reason = f"where {order.reasons[around]}"
        raise ConfigError(
            f"cannot cut at '{name}': it is inside '{around}', {reason}",
            f"Cut between layers: {_listed(layers)}.",
        )
    raise ConfigError(unknown("layer", name, [layer.name for layer in layers]))


def _is_trained(layer: NamedLayer) -> bool:
    return any(param.requires_grad for param in layer.module.parameters())


def _tied_across(layers: Sequence[NamedLayer], start: int) -> tuple[str, str] | None:
    """The names of two layers, one before `start` and one from there on, that share a parameter or a buffer."""
    held = [(layer.name, [*layer.module.parameters(), *layer.module.buffers()]) for layer in layers]
    owner = {id(tensor): name for name, tensors in held[:start] for tensor in tensors}
    return next(
        (
            (owner[id(tensor)], name)
            for name, tensors in held[start:]
            for tensor in tensors
            if id(tensor) in owner
        ),
        None,
    )


def _listed(layers: Sequence[NamedLayer]) -> str:
    return ", ".join(layer.name for layer in layers)
