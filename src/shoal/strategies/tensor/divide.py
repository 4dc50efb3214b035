"""Divide a model's layers among the workers of a group, in place: `shoal.tensor_parallel`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from shoal import nested
from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.errors import ConfigError, ShoalError
from shoal.models.common import check_has_values, evaluation_mode
from shoal.nested import Nested
from shoal.strategies.library.part_gradients import mark
from shoal.strategies.pieces.piece import Place
from shoal.strategies.tensor.attention import leave_fused_path
from shoal.strategies.tensor.automatic import automatic_plan
from shoal.strategies.tensor.by_function import on_worker
from shoal.strategies.tensor.parts import Cut
from shoal.strategies.tensor.plan import divided, resolved, worker_of

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class TensorParts:
    """What this worker holds of a divided model, under the names of the whole model."""

    group: Group
    """The workers that divide it."""
    plan: Mapping[str, str]
    """The cut of each divided layer."""
    names: frozenset[str]
    """All parameters and buffers of the whole model, also those that only other workers hold."""
    cuts: Mapping[str, Cut]
    """The parameters and buffers that are divided."""
    alone: frozenset[str] = frozenset()
    """Those that this worker alone holds: of modules that one worker computes."""
    repeated: frozenset[str] = field(default=frozenset())
    """Those that worker 0 of the group holds too: all that is neither divided nor alone here; none on worker 0."""

    def place(self, name: str, tensor: Tensor, replica: int = 0) -> Place:
        """The place in the whole of what this worker holds; `replica` numbers the replicas of the whole model."""
        cut = self.cuts.get(name)
        if cut is not None:
            whole = list(tensor.shape)
            whole[cut.dim] *= self.group.size
            return cut.place(tuple(whole), self.group, replica)
        if name in self.alone:
            return Place.whole(tensor, replica)
        return Place.whole(tensor, replica * self.group.size + self.group.rank)


@checks_arguments
def tensor_parallel(
    module: Module, group: Group, plan: Mapping[str, str] | None = None, example: Nested | None = None
) -> Module:
    """Divide the layers of a module among the workers of a group, in place; returns the module.

    All workers call it with the same module (the same weights!) and plan, and then train it in their own loop, each
    with the *same* batch. Every worker's optimizer updates its own parts; parameters that are not divided have the same
    gradient on all workers, and `torch.nn.utils.clip_grad_norm_`, a collective, counts them once. Without a plan, pairs
    of layers are found where the module's data flow is known (see `automatic_plan`). `plan` maps layers to cuts (see
    `plan`). With `example`, inputs of a few samples, the divided module is checked against the whole one.

        model = shoal.tensor_parallel(model, shoal.join(), {"fc1": "column", "fc2": "row"})
    """
    check_has_values(module)
    parts = divide(module, group, plan, example)
    for name, param in module.named_parameters():
        if name in parts.cuts or name in parts.alone:
            param.register_post_accumulate_grad_hook(lambda param: mark(param, group))
    return module


def divide(
    model: nn.Module, group: Group, plan: Mapping[str, str] | None = None, example: Nested | None = None
) -> TensorParts:
    """Divide a model in place; what this worker then holds."""
    cuts_by_layer = resolved(automatic_plan(model, group) if plan is None else plan, model, group.size)
    _check_not_shared(model, cuts_by_layer)
    leave_fused_path(model)
    names = frozenset(model.state_dict())
    expected = None if example is None else _outputs(model, example)
    _check_everyone_trains(model, cuts_by_layer, group)
    cuts, alone = dict[str, Cut](), frozenset[str]()
    for name, cut in cuts_by_layer.items():
        owner = worker_of(cut)
        if owner is not None:
            model.set_submodule(name, on_worker(model.get_submodule(name), group, owner, name))
            alone |= {each for each in names if owner == group.rank and each.startswith(f"{name}.")}
            continue
        layer, layer_cuts = divided(cut, model.get_submodule(name), group, name)
        model.set_submodule(name, layer)
        cuts |= {f"{name}.{key}": each for key, each in layer_cuts.items() if f"{name}.{key}" in names}
    held = frozenset(model.state_dict())
    repeated = held - cuts.keys() - alone if group.rank else frozenset[str]()
    parts = TensorParts(group, cuts_by_layer, names, cuts, alone, repeated)
    if example is not None and expected is not None:
        _check_same(model, example, expected)
    return parts


def _check_everyone_trains(model: nn.Module, plan: Mapping[str, str], group: Group) -> None:
    """Refuse a plan that leaves a worker without parameters; the same error on all workers."""
    given = {f"{name}.": worker_of(cut) for name, cut in plan.items() if worker_of(cut) is not None}
    training = set[int]()
    for name, param in model.named_parameters():
        owner = next((worker for prefix, worker in given.items() if name.startswith(prefix)), None)
        if param.requires_grad:
            training |= set(range(group.size)) if owner is None else {owner}
    idle = sorted(set(range(group.size)) - training)
    if idle:
        raise ConfigError(
            f"the plan leaves worker {idle[0]} of {group.size} without parameters to train",
            f"Give it a module, or use {max(training) + 1} workers (--mesh tensor={max(training) + 1}).",
        )


def _check_not_shared(model: nn.Module, plan: Mapping[str, str]) -> None:
    """Refuse to cut a layer whose parameter another layer has too: they would stop being one."""
    owners: dict[int, str] = {}
    for path, param in model.named_parameters(remove_duplicate=False):
        first = owners.setdefault(id(param), path)
        if first == path:
            continue
        for name in plan:
            if any(each.startswith(f"{name}.") for each in (first, path)) and not (
                first.startswith(f"{name}.") and path.startswith(f"{name}.")
            ):
                raise ConfigError(
                    f"the plan cuts {name}, but {first} and {path} are one parameter",
                    f"Leave {name} out of the plan.",
                )


@torch.no_grad()
def _outputs(model: nn.Module, example: Nested) -> list[Tensor]:
    with evaluation_mode(model):
        return [leaf for _, leaf in nested.leaves(nested.call(model, example))]


def _check_same(model: nn.Module, example: Nested, expected: Sequence[Tensor]) -> None:
    """Refuse a plan under which the model computes something else."""
    running: list[str] = []

    def entered(name: str) -> Callable[..., None]:
        return lambda module, inputs: running.append(f"{name} ({type(module).__name__})")

    leaves = [
        (name, module) for name, module in model.named_modules() if not any(True for _ in module.children())
    ]
    hooks = [module.register_forward_pre_hook(entered(name)) for name, module in leaves]
    try:
        outputs = _outputs(model, example)
    except ShoalError:
        raise
    except (RuntimeError, IndexError, ValueError) as error:
        where = running[-1] if running else type(model).__name__
        raise ConfigError(
            f"the plan does not fit the model: {where} cannot take its input: {str(error).splitlines()[0]}",
            'After a "column" cut, the next layer with weights needs "row"; "gather" makes the output whole.',
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not all(_is_close(*pair) for pair in zip(outputs, expected, strict=True)):
        raise ConfigError(
            "the plan changes what the model computes: on the same samples its outputs differ from the whole model's",
            'Between "column" and "row" only functions of single elements fit; "gather" makes the output whole.',
        )


def _is_close(outputs: Tensor, expected: Tensor) -> bool:
    scale = expected.abs().max().clamp(min=1e-6)
    return outputs.shape == expected.shape and bool((outputs - expected).abs().max() <= 1e-3 * scale)
