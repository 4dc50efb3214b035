"""The base of all optimizers: state, groups and the loop over the parameters. The rules are in their own files."""

import inspect
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from shoal.config.kinds import check
from shoal.errors import CheckpointError, ConfigError
from shoal.optim.rows import Joins, Row, alike, are_uniform, zeros_beside

Group = dict[str, Any]
"""One of torch's `param_groups`: parameters and the options they are updated with."""


Kind = TypeVar("Kind", bound=Hashable)


class Elementwise(torch.optim.Optimizer, ABC):
    """An optimizer that updates each element from its own parameter, gradient and state only.

    Such an optimizer can be split at any element: slices of the flat parameters, updated by different workers, equal
    the whole parameters updated by one. A subclass defines two updates of rows (param, grad, \\*state):

    - `readable`: the definition, in operations whose bits do not depend on the split (float32 and float64);
    - `fused`: the same by torch's fused kernels, whose bits may depend on the split.

    `step` does the rest. Phase 1, select: parameters with a gradient; a sparse one is refused before anything changes.
    Phase 2, state: create missing state, count steps. Phase 3, update: the readable step row by row; the fast one in as
    few calls as the rows' devices, dtypes and memory allow.

    State has torch's names, so `state_dict` and `load_state_dict` are compatible with `torch.optim`. `fast` belongs to
    the process, not to the state. Memory: the state, and for `readable` on a CPU one or two temporaries of
    `rows.BYTES_PER_THREAD` per thread. Not safe: capturing `step` in a CUDA graph, which would repeat one step count
    and one learning rate.
    """

    elementwise: ClassVar[bool] = True
    """Declares that parameters may be split at any element."""
    limits: ClassVar[Mapping[str, Any]] = {}
    """The type of each option."""
    refused: ClassVar[Mapping[str, Any]] = {"maximize": False}
    """torch's options that are not supported and change the result: the only value allowed in a loaded state."""
    counts_steps: ClassVar[bool] = False
    """Whether the rule depends on the number of updates of a parameter."""
    nonnegative: ClassVar[Collection[str]] = ()
    """State that is never below zero."""

    def __init__(self, params: Iterable[Any], options: Mapping[str, Any], fast: bool) -> None:
        params = [params] if isinstance(params, Tensor) else list(params)
        if not params:
            raise ConfigError(f"{type(self).__name__} got no parameters")
        self.fast = fast
        self._joined = Joins()
        super().__init__(params, dict(options))

    @abstractmethod
    def state_names(self, group: Group) -> tuple[str, ...]:
        """The state of a row after (param, grad), for these options."""

    @abstractmethod
    def readable(self, rows: Sequence[Row], group: Group, step: int) -> None:
        """Update rows in place: the definition. `step` counts from 1; it is 0 unless `counts_steps`."""

    @abstractmethod
    def fused(self, rows: Sequence[Row], group: Group, step: int, found_inf: Tensor | None = None) -> None:
        """Update dense rows of one device and dtype in place, in one call of torch's fused kernel.

        If `found_inf` is 1, the kernel changes nothing.
        """

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        closure: Callable[[], Any] | None = None,
        *,
        found_inf: Tensor | None = None,
        only: Sequence[Tensor] | None = None,
    ) -> Any:
        """Update every parameter that has a gradient, or `only` these; returns the closure's loss, if there is one.

        The fast step does not change parameters and state if `found_inf`, a number on their device, is 1: the host
        need not wait for the device. (The count of steps goes on, so this is for a run that then ends.)
        """
        if found_inf is not None and not self.fast:
            raise ConfigError("found_inf is not supported by the readable step", "Use fast=True.")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, params, grads in self.with_gradients(only):
            columns, states = self._with_state(params, self.state_names(group))
            counts = _count(states) if self.counts_steps else [0] * len(params)
            self._update(group, [*zip(params, grads, *columns, strict=True)], counts, found_inf)
        return loss

    def with_gradients(
        self, only: Sequence[Tensor] | None = None
    ) -> list[tuple[Group, list[Tensor], list[Tensor]]]:
        """Phase 1: the parameters that have a gradient, or `only` these, and the gradients, by group."""
        selected: list[tuple[Group, list[Tensor], list[Tensor]]] = []
        for group in self.param_groups:
            params: list[Any] = group["params"] if only is None else self._among(only, group)
            grads = [param.grad for param in params]
            if NoneType in map(type, grads):
                params = [param for param in params if param.grad is not None]
                grads = [param.grad for param in params]
            layouts = [*map(attrgetter("layout"), grads)]
            if layouts.count(torch.strided) != len(layouts):
                sparse = next(param for param in params if param.grad.layout is not torch.strided)
                raise ConfigError(
                    f"{type(self).__name__} cannot use the sparse gradient of {_name(group, sparse)}",
                    "Build the layer with sparse=False, or use torch.optim.SparseAdam for it.",
                )
            if grads:
                selected.append((group, params, grads))
        return selected

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own options; a ConfigError for invalid ones."""
        # Unwrapped, because torch's wrapper imports its compiler: a second at the start of every worker.
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)
        group = self.param_groups[-1]
        self.check_options(group)
        for param in group["params"]:
            if not param.is_floating_point():
                kind = str(param.dtype).removeprefix("torch.")
                raise ConfigError(
                    f"{type(self).__name__} updates real floating-point numbers; {_name(group, param)} is {kind}"
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of ours or of torch's. Tensors are copied; the source is not changed."""
        for group in state_dict["param_groups"]:
            for name, only in self.refused.items():
                if group.get(name, only) != only:
                    raise CheckpointError(
                        f"the optimizer's state has {name} = {group[name]}; {type(self).__name__} supports only {only}"
                    )
            for name in self.limits:
                if name not in group:
                    raise CheckpointError(
                        f"the optimizer's state has no {name}, which {type(self).__name__} requires",
                        "It belongs to another kind of optimizer.",
                    )
            self.check_options(group)
        try:
            inspect.unwrap(torch.optim.Optimizer.load_state_dict)(self, state_dict)
        except ValueError as error:
            raise CheckpointError(f"the optimizer's state is of another model: {error}") from error
        for group in self.param_groups:
            self._own_state(group)

    def check_options(self, group: Group) -> None:
        """Raise a ConfigError for options that are out of range or contradict each other."""
        for name, kind in self.limits.items():
            check(kind, group[name], f"{type(self).__name__}'s {name}")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fast": self.fast, "_joined": Joins()}

    def _among(self, only: Sequence[Tensor], group: Group) -> list[Tensor]:
        """The parameters of a group that are among these."""
        if len(self.param_groups) == 1:
            return [*only]
        chosen = {id(param) for param in only}
        return [param for param in group["params"] if id(param) in chosen]

    def _with_state(
        self, params: Sequence[Tensor], names: Sequence[str]
    ) -> tuple[list[list[Tensor]], list[dict[str, Tensor]]]:
        """Phase 2: for each name the state of all parameters, and each one's states; missing ones start at zero."""
        if not names:
            return [], []
        states = [*map(self.state.__getitem__, params)]
        columns = [[*map(methodcaller("get", name), states)] for name in names]
        if NoneType in map(type, chain.from_iterable(columns)):
            for name in names:
                fresh = [param for param in params if self.state[param].get(name) is None]
                for param, zeros in zip(fresh, zeros_beside(fresh), strict=True):
                    self.state[param][name] = zeros
            return self._with_state(params, names)
        return columns, states

    def _update(self, group: Group, rows: list[Row], counts: list[int], found_inf: Tensor | None) -> None:
        if not self.fast:
            for count, batch in _batches(rows, counts):
                self.readable(batch, group, count)
        elif are_uniform(rows):
            for count, batch in _batches(rows, counts):
                self.fused(self._joined(batch), group, count, found_inf)
        else:
            dense = [alike(row) for row in rows]
            kinds = [(row[0].device, row[0].dtype, count) for row, count in zip(dense, counts, strict=True)]
            for (_, _, count), batch in _batches(dense, kinds):
                self.fused(self._joined(batch), group, count, found_inf)
            for (param, *_), (updated, _, *state) in zip(rows, dense, strict=True):
                if updated is not param:
                    param.copy_(updated)
                # State in another memory order keeps the new order, so that it is copied only once.
                if state:
                    self.state[param].update(zip(self.state_names(group), state, strict=True))

    def _own_state(self, group: Group) -> None:
        """Copy loaded state into our own memory, adjacent where the parameters are."""
        for name in self.state_names(group):
            loaded = [param for param in group["params"] if self.state.get(param, {}).get(name) is not None]
            for param, own in zip(loaded, zeros_beside(loaded), strict=True):
                state = self.state[param]
                if state[name].shape != param.shape:
                    raise CheckpointError(
                        f"the optimizer's state is of another model: {name} of {_name(group, param)} has "
                        f"shape {tuple(state[name].shape)}"
                    )
                state[name] = own.copy_(state[name])
        if self.counts_steps:
            for param in group["params"]:
                if "step" in self.state.get(param, {}):
                    self.state[param]["step"] = torch.tensor(float(self.state[param]["step"]))


def _batches(rows: list[Row], kinds: list[Kind]) -> Iterable[tuple[Kind, list[Row]]]:
    """The rows of each kind together."""
    if kinds.count(kinds[0]) == len(kinds):  # nearly always
        return [(kinds[0], rows)]
    batches: defaultdict[Kind, list[Row]] = defaultdict(list)
    for kind, row in zip(kinds, rows, strict=True):
        batches[kind].append(row)
    return batches.items()


def _count(states: Sequence[dict[str, Tensor]]) -> list[int]:
    """Count this step for every parameter that takes part; returns the new counts.

    Each state's `step` is a tensor, as in torch. They are elements of one vector, so that counting and reading are one
    operation each, and on the host, where reading never waits for a GPU. If they are not (no step yet, a checkpoint,
    another set of parameters), a new vector is built.
    """
    steps = [state.get("step") for state in states]
    vector = _vector_of(steps)
    if vector is None:
        vector = torch.tensor([0.0 if step is None else float(step) for step in steps], dtype=torch.float32)
        for state, step in zip(states, vector.unbind(), strict=True):
            state["step"] = step
    vector.add_(1)
    return [*map(int, vector.tolist())]


def _vector_of(steps: Sequence[Tensor | None]) -> Tensor | None:
    """The vector of which the steps are exactly the elements, in order; None if there is no such vector."""
    vector = None if steps[0] is None else steps[0]._base
    if vector is None or vector.numel() != len(steps):
        return None
    for place, step in enumerate(steps):
        if step is None or step._base is not vector or step.storage_offset() != place:
            return None
    return vector


def _name(group: Group, param: Tensor) -> str:
    index = next(index for index, other in enumerate(group["params"]) if other is param)
    name = f"'{group['param_names'][index]}'" if "param_names" in group else f"{index} of its group"
    return f"parameter {name} (shape {tuple(param.shape)})"
