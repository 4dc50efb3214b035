"""A graph as one straight-line Python function that writes into planned memory.

Buffers, views of buffers and transposes of weights are created at compile time. A call executes one line per kernel,
without allocations, shape arithmetic or new Python objects.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from shoal.autograd.gradient import deliver
from shoal.autograd.static.graph import Graph, Operation, Value
from shoal.autograd.static.memory import ALLOCATED, UNARY, MemoryPlan
from shoal.autograd.variable import Variable

Template = Callable[[Operation, list[str], list[str]], str]
"""(operation, names of inputs, names of outputs) → a line of Python that writes the outputs."""


def _into(function: str) -> Template:
    return lambda operation, inputs, outputs: f"{function}({', '.join(inputs)}, out={outputs[0]})"


def _number_last(function: str) -> Template:
    """For commutative operations: torch takes the tensor first."""

    def line(operation: Operation, inputs: list[str], outputs: list[str]) -> str:
        a, b = inputs if isinstance(operation.inputs[0], Value) else inputs[::-1]
        return f"{function}({a}, {b}, out={outputs[0]})"

    return line


def _max_pool2d(operation: Operation, inputs: list[str], outputs: list[str]) -> str:
    kernel, stride, padding = (operation.attributes[key] for key in ("kernel", "stride", "padding"))
    options = f"{kernel}, {stride}, {padding}, (1, 1), False, out={outputs[0]}, indices={outputs[1]}"
    return f"aten.max_pool2d_with_indices.out({inputs[0]}, {options})"


TEMPLATES: dict[str, Template] = {
    "add": _number_last("torch.add"),
    "mul": _number_last("torch.mul"),
    "subtract": _into("torch.sub"),
    **{name: _into(f"torch.{name}") for name in UNARY},
    "relu": lambda o, i, out: f"torch.clamp_min({i[0]}, 0.0, out={out[0]})",
    "masked": lambda o, i, out: (
        f"aten.threshold_backward.grad_input({i[0]}, {i[1]}, 0.0, grad_input={out[0]})"
    ),
    "pow": lambda o, i, out: f"torch.pow({i[0]}, {o.attributes['exponent']!r}, out={out[0]})",
    "equal": _into("torch.eq"),
    "greater": _into("torch.gt"),
    "convert": lambda o, i, out: f"{out[0]}.copy_({i[0]})",
    "sum": lambda o, i, out: (
        f"torch.sum({i[0]}, {o.attributes['dims']}, {o.attributes['keep']}, out={out[0]})"
        if o.attributes["dims"]
        else f"{out[0]}.copy_({i[0]})"
    ),
    "max": lambda o, i, out: f"torch.amax({i[0]}, {o.attributes['dims']}, True, out={out[0]})",
    "concatenate": lambda o, i, out: f"torch.cat(({', '.join(i)},), {o.attributes['dim']}, out={out[0]})",
    "index_select": lambda o, i, out: (
        f"torch.index_select({i[0]}, {o.attributes['dim']}, {i[1]}, out={out[0]})"
    ),
    "index_scatter": lambda o, i, out: f"{out[0]}.zero_().index_add_({o.attributes['dim']}, {i[1]}, {i[0]})",
    "take_along": lambda o, i, out: f"torch.gather({i[0]}, {o.attributes['dim']}, {i[1]}, out={out[0]})",
    "put_along": lambda o, i, out: f"{out[0]}.zero_().scatter_add_({o.attributes['dim']}, {i[1]}, {i[0]})",
    "max_pool2d": _max_pool2d,
    "reshape": lambda o, i, out: f"{out[0]}.copy_({i[0]}.reshape({list(o.outputs[0].shape)}))",
}
"""Kernels that write to a given output. The result of any other operation is copied into its buffer."""


@final
class Writer:
    """Writes the function line by line and holds the values of its names."""

    def __init__(self, graph: Graph, memory: MemoryPlan, device: torch.device) -> None:
        self.graph = graph
        self.memory = memory
        self.device = device
        self.arena = torch.empty(memory.num_bytes, dtype=torch.uint8, device=device)
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten, "deliver": deliver}
        self.names: dict[Value, str] = {}
        self.fixed: dict[str, Tensor] = {}
        """Tensors whose memory does not change between calls, by name: views of them are created at compile time."""
        self.gradients: list[tuple[Variable, Tensor]] = []
        self.num_bytes_copied = 0
        """Bytes of gradients that are copied to memory of their own."""
        self.source = ""
        self.dying: dict[int, list[Value]] = {}
        """Values outside the arena, by the operation that reads them (or their base) for the last time."""
        for value, root in memory.roots.items():
            if root.kind == "computed" and root not in memory.offsets and root in memory.last_use:
                self.dying.setdefault(memory.last_use[root], []).append(value)

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """Write and compile the function: inputs → outputs; it delivers gradients as it runs."""
        parameters = [self._name(value) for value in self.graph.inputs]
        pending = self._deliver_ready(self.graph.deliveries, set())
        made: set[Value] = set()
        for index, operation in enumerate(self.graph.operations):
            self._operation(operation)
            made.update(operation.outputs)
            pending = self._deliver_ready(pending, made)
            dead = [self.names[value] for value in self.dying.get(index, ()) if value in self.names]
            if dead:  # what a kernel allocated is freed after its last read
                self.lines.append(f"del {', '.join(dead)}")
        results = ", ".join(f"{self._name(value)}.clone()" for value in self.graph.outputs)
        body = "\n    ".join([*self.lines, f"return ({results},)" if results else "return ()"])
        self.source = f"def plan({', '.join(parameters)}):\n    {body}\n"
        exec(compile(self.source, "<plan>", "exec"), self.space)
        return self.space["plan"]

    def _operation(self, operation: Operation) -> None:
        output = operation.outputs[0]
        if self.memory.roots[output] is not output:
            self.names[output] = self._view_of(self._name(operation.values[0]), operation)
            return
        if operation.name in ("matmul", "matmul_add"):
            self._product(operation)
            return
        inputs = [self._name(o) if isinstance(o, Value) else repr(o) for o in operation.inputs]
        if operation.name in ALLOCATED:
            self.names[output] = name = f"t{len(self.names)}"
            self.lines.append(f"{name} = {self._call(operation, inputs)}")
            return
        over = self.memory.taken_over.get(output)
        outputs = [self._name(value) for value in ([over] if over else operation.outputs)]
        template = TEMPLATES.get(operation.name)
        line = (
            template(operation, inputs, outputs)
            if template is not None
            else f"{outputs[0]}.copy_({self._call(operation, inputs)})"
        )
        if over is not None:  # kernels return the tensor they wrote
            self.names[output] = name = f"t{len(self.names)}"
            line = f"{name} = {line}"
        self.lines.append(line)

    def _product(self, operation: Operation) -> None:
        """A product with its transposes taken at compile time; A Bᵀ is computed as Cᵀ = B Aᵀ, as in `matmul`."""
        values = operation.values
        a, b, *bias = [self._name(value) for value in values]
        c = self._name(operation.outputs[0])
        transpose_a, transpose_b = (operation.attributes.get(f"transpose_{side}") for side in "ab")
        flat = all(len(value.shape) == 2 for value in values[:2])
        if flat and transpose_b and not transpose_a:
            a, b, c = b, self._view(a, "mT"), self._view(c, "mT")
            bias = [self._view(name, "unsqueeze(1)") for name in bias]
        else:
            a = self._view(a, "mT") if transpose_a else a
            b = self._view(b, "mT") if transpose_b else b
        kernel = "addmm" if bias else "mm" if flat else "matmul"
        self.lines.append(f"torch.{kernel}({', '.join([*bias, a, b])}, out={c})")

    def _call(self, operation: Operation, inputs: list[str]) -> str:
        function = f"f_{operation.name}"
        self.space[function] = operation.primitive.forward
        options = [f"{key}={value!r}" for key, value in operation.attributes.items()]
        return f"{function}({', '.join([*inputs, *options])})"

    def _name(self, value: Value) -> str:
        """The name of a value; its buffer is created with the name."""
        if value in self.names:
            return self.names[value]
        prefix = {"input": "x", "leaf": "p", "constant": "c"}.get(value.kind, "b")
        name = self.names[value] = f"{prefix}{len(self.names)}"
        if value.kind == "computed":
            offset = self.memory.offsets[value]
            buffer = self.arena[offset : offset + value.num_bytes].view(value.dtype).view(value.shape)
            self._bind(name, buffer)
        elif value.tensor is not None:
            self._bind(name, value.tensor)
        return name

    def _bind(self, name: str, tensor: Tensor) -> None:
        self.space[name] = self.fixed[name] = tensor

    def _view_of(self, source: str, operation: Operation) -> str:
        """A view: of fixed memory created now; of an input or an allocated result, in each call."""
        name = f"w{len(self.space)}"
        if source in self.fixed:
            self._bind(name, operation.primitive.forward(self.fixed[source], **operation.attributes))
        else:
            self.space[name] = None
            self.lines.append(f"{name} = {self._call(operation, [source])}")
        return name

    def _view(self, source: str, method: str) -> str:
        """`source.mT` and similar views, created now if the source is fixed."""
        expression = f"{source}.{method}"
        if source not in self.fixed:
            return expression
        name = re.sub(r"\W", "_", expression)
        if name not in self.fixed:
            self._bind(name, self.fixed[source].mT if method == "mT" else self.fixed[source].unsqueeze(1))
        return name

    def _deliver_ready(
        self, pending: Sequence[tuple[Variable, Value]], made: set[Value]
    ) -> list[tuple[Variable, Value]]:
        later: list[tuple[Variable, Value]] = []
        for parameter, value in pending:
            if value.kind == "computed" and value not in made:
                later.append((parameter, value))
                continue
            number = len(self.gradients)
            if value in self.memory.owned:
                gradient = self.fixed[self._name(value)]
            else:
                gradient = torch.empty(value.shape, dtype=value.dtype, device=self.device)
                self.num_bytes_copied += gradient.nbytes
                self.lines.append(f"g{number}.copy_({self._name(value)})")
            self.gradients.append((parameter, gradient))
            self.space |= {f"g{number}": gradient, f"v{number}": parameter}
            self.lines.append(f"deliver(v{number}, g{number})")
        return later
