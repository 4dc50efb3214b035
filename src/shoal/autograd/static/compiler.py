"""Compile a function once and run it many times: the static graph.

The dynamic tape follows the program in every call, so the program can do anything. A static graph is traced once, so
it can be optimised before it runs, and it does the same for all data.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from shoal.autograd.static.emit import Writer
from shoal.autograd.static.graph import Graph, trace
from shoal.autograd.static.matmul_order import num_multiplications
from shoal.autograd.static.memory import MemoryPlan, plan_memory, roots_of
from shoal.autograd.static.passes import PASSES
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError

Signature = tuple[tuple[tuple[int, ...], torch.dtype, torch.device], ...]

MOST_PLANS = 8  # kept at once, for different shapes: each has buffers of its own


@final
@dataclass(frozen=True)
class Stage:
    """The graph after one pass."""

    name: str
    num_operations: int
    num_bytes: int
    """Bytes that the operations write; views write nothing."""
    num_multiplications: int
    """In matrix products."""


@final
class StaticPlan:
    """One function at one set of shapes: the optimised graph, its memory and its code."""

    def __init__(
        self, function: Callable[..., Any], examples: tuple[Tensor, ...], optimise: bool = True
    ) -> None:
        self.traced = trace(function, examples)
        graph = self.traced
        self.stages = [_stage("as written", graph)]
        for name, improve in PASSES.items() if optimise else ():
            graph = improve(graph)
            self.stages.append(_stage(name, graph))
        self.graph: Graph = graph
        self.memory: MemoryPlan = plan_memory(graph)
        self._device = examples[0].device if examples else torch.device("cpu")
        read = (
            value.tensor
            for operation in graph.operations
            for value in operation.values
            if value.kind == "leaf"
        )
        self._leaves = list({id(tensor): tensor for tensor in read if tensor is not None}.values())
        """The tensors of the parameters that the plan reads."""
        self._bind()

    def _bind(self) -> None:
        writer = Writer(self.graph, self.memory, self._device)
        self._function = writer.function()
        self.source = writer.source
        self._num_bytes_copied = writer.num_bytes_copied
        self._gradients = [(parameter.value, gradient) for parameter, gradient in writer.gradients]
        self._places = [leaf.data_ptr() for leaf in self._leaves]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the plan."""
        for leaf, place in zip(self._leaves, self._places, strict=True):
            if leaf.data_ptr() != place:  # param.data = … gave it other memory: views must be recreated
                self._bind()
                break
        for value, gradient in self._gradients:
            if value.grad is gradient:  # from the previous call: it will be added to, so keep it
                value.grad = gradient.clone()
        try:
            return self._function(*inputs)
        except (RuntimeError, IndexError) as reason:  # such as a label that is too large
            shapes = ", ".join(str(tuple(value.shape)) for value in inputs)
            raise AutogradError(
                f"a compiled graph failed on inputs of shapes {shapes}", str(reason).splitlines()[0]
            ) from reason

    @property
    def unshared_bytes(self) -> int:
        """Bytes of the arena if every value had memory of its own."""
        return sum(value.num_bytes for value in self.memory.offsets)

    @property
    def num_bytes_kept(self) -> int:
        """Bytes that the plan keeps between calls: the arena, and gradients outside it."""
        return self.memory.num_bytes + self._num_bytes_copied

    def table(self) -> str:
        """Operations and bytes written before and after each pass, and the arena with and without sharing."""
        lines = [f"{'':24} {'operations':>10} {'bytes written':>14} {'multiplications':>16}"]
        lines += [
            f"{s.name:24} {s.num_operations:10,} {s.num_bytes:14,} {s.num_multiplications:16,}"
            for s in self.stages
        ]
        lines.append(f"{'memory, each its own':24} {'':10} {self.unshared_bytes:14,}")
        lines.append(f"{'memory, planned':24} {'':10} {self.memory.num_bytes:14,}")
        return "\n".join(lines)


@final
class Compiled:
    """A compiled function: call it with tensors, get tensors."""

    def __init__(self, function: Callable[..., Any], say: Callable[[str], None], optimise: bool) -> None:
        self._function = function
        self._say = say
        self._optimise = optimise
        self._plans: dict[Signature, StaticPlan] = {}

    def has_plan(self, *inputs: Tensor) -> bool:
        """Whether a call with these inputs runs without compiling first."""
        return _signature(inputs) in self._plans

    def plan(self, *inputs: Tensor) -> StaticPlan:
        """The plan for inputs of these shapes; compiles it if there is none yet."""
        _check_tensors(inputs)
        signature = _signature(inputs)
        found = self._plans.get(signature)
        if found is None:
            if self._plans:
                shapes = ", ".join(str(shape) for shape, *_ in signature)
                known = "; ".join(", ".join(str(shape) for shape, *_ in old) for old in self._plans)
                self._say(f"compiling again for new shapes {shapes} (so far: {known})")
            if len(self._plans) == MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            found = self._plans[signature] = StaticPlan(self._function, inputs, self._optimise)
        return found

    def __call__(self, *inputs: Tensor) -> Any:
        """Run on tensors; returns a tensor, or a tuple if the function returns several."""
        results = self.plan(*inputs)(*inputs)
        return results[0] if len(results) == 1 else results


def _check_tensors(inputs: Sequence[Any]) -> None:
    for position, value in enumerate(inputs):
        if not isinstance(value, Tensor):
            raise AutogradError(
                f"a compiled function takes tensors, but argument {position} is a {type(value).__name__}",
                "Pass the variable's tensor, variable.value: the compiler makes variables of its own."
                if type(value) is Variable
                else "Pass numbers as torch.tensor(…): they may then differ between calls.",
            )


def _signature(inputs: Sequence[Tensor]) -> Signature:
    return tuple([(tuple(value.shape), value.dtype, value.device) for value in inputs])


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")


def compile(  # noqa: A001 (what it does, in the field's word)
    function: Callable[..., Any],
    *examples: Tensor,
    say: Callable[[str], None] = _say_on_stderr,
    optimise: bool = True,
) -> Compiled:
    """Compile a function of variables for inputs like the examples.

    Phase 1: trace it on placeholders, with the derivatives it takes (`grad`, `backward`). Phase 2: constant folding,
    common subexpressions, order of matmul chains, dead code, fusion. Phase 3: plan memory and write one straight-line
    function that uses it.

    Inputs of other shapes are compiled at their first call, which `say` reports. A branch on data is an error. Results
    equal those of the tape to the last bit unless a pass reorders a sum (never with `optimise=False`).

    Not safe: a gradient in `value.grad` is the plan's memory, and the next call overwrites it unless it is still in
    `value.grad` then; clone gradients that must survive. Do not call a compiled function from two threads at once.

    >>> from shoal.autograd import Variable, grad
    >>> square = compile(lambda x: grad((x * x).sum(), [x])[0], torch.ones(2))
    >>> square(torch.tensor([3.0, 4.0]))
    tensor([6., 8.])
    """
    compiled = Compiled(function, say, optimise)
    if examples:
        compiled.plan(*examples)
    return compiled


def _stage(name: str, graph: Graph) -> Stage:
    roots = roots_of(graph)
    written = sum(v.num_bytes for o in graph.operations for v in o.outputs if roots[v] is v)
    return Stage(name, len(graph.operations), written, num_multiplications(graph))
