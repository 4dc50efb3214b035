"""Our two engines against torch's: a training step, the forward pass, memory, and a long chain.

    python bench/autograd.py [--json] [--rounds N]

Base is torch eager with the same kind of optimizer, batch 64, one thread. Rivals take turns within one run.
"""

import json
from collections import OrderedDict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from common import Target, in_units, interleave, machine, options, report
from shoal.autograd import Tape, Variable, grad, no_record, static
from shoal.autograd import nn as layers
from shoal.autograd.batch_gradients import StaticGradients, static_gradients, tape_gradients

BATCH = 64
SCALE = 1 / BATCH

STEP_TARGETS = {
    "mlp": [
        Target("dynamic", "torch", at_most=1.3),
        Target("static", "torch", at_most=0.9),
        Target("dynamic", "static", at_least=1.35),
    ],
    "lenet": [Target("dynamic", "torch", at_most=1.5), Target("static", "torch", at_most=1.1)],
}


def mlp() -> nn.Sequential:
    """784-128-64-10 with ReLU."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(784, 128),
            relu1=nn.ReLU(),
            fc2=nn.Linear(128, 64),
            relu2=nn.ReLU(),
            fc3=nn.Linear(64, 10),
        )
    )


def lenet() -> nn.Sequential:
    """Two convolutions with pooling, two linear layers."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(400, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 10),
        )
    )


NETWORKS: dict[str, Callable[[], nn.Sequential]] = {"mlp": mlp, "lenet": lenet}


def batch() -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(0)
    return (
        torch.rand(BATCH, 1, 28, 28, generator=generator),
        torch.randint(0, 10, (BATCH,), generator=generator),
    )


def training_steps(name: str) -> dict[str, Callable[[], None]]:
    """One training step of each engine, each on a network and an optimizer of its own."""
    inputs, labels = batch()
    module = NETWORKS[name]()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def torch_step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(inputs), labels, reduction="sum")
        loss.backward(torch.full_like(loss, SCALE))
        optimizer.step()

    steps: dict[str, Callable[[], None]] = {"torch": torch_step}
    for engine, make in (("dynamic", tape_gradients), ("static", static_gradients)):
        layer = layers.from_torch(NETWORKS[name]())
        ours = torch.optim.SGD([parameter.value for parameter in layers.parameters(layer)], lr=1e-3)
        gradients = make(layer, "cross_entropy")

        def our_step(
            ours: torch.optim.Optimizer = ours, gradients: Callable[..., Tensor] = gradients
        ) -> None:
            ours.zero_grad()
            gradients(inputs, labels, SCALE)
            ours.step()

        steps[engine] = our_step
    return steps


def forward_passes(name: str) -> dict[str, Callable[[], None]]:
    """One forward pass of each engine, nothing recorded."""
    inputs, _ = batch()
    module = NETWORKS[name]()
    layer = layers.from_torch(module)
    compiled = static.compile(layer, inputs)

    def torch_forward() -> None:
        with torch.no_grad():
            module(inputs)

    def dynamic() -> None:
        with no_record():
            layer(Variable(inputs))

    def compiled_forward() -> None:
        compiled(inputs)

    return {"torch": torch_forward, "dynamic": dynamic, "static": compiled_forward}


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes that tensors made by `work` held at once, from the allocator's own record."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    for event in record.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            held += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
            most = max(most, held)
    return most


def peak_memory(name: str) -> dict[str, int]:
    """Bytes beyond weights and batch: what a step holds at most, with the buffers a plan keeps between steps."""
    inputs, labels = batch()
    found: dict[str, int] = {}
    module = NETWORKS[name]()

    def torch_step() -> None:
        F.cross_entropy(module(inputs), labels, reduction="sum").backward()

    torch_step()
    module.zero_grad()
    found["torch"] = peak_bytes(torch_step)
    for engine, make in (("dynamic", tape_gradients), ("static", static_gradients)):
        layer = layers.from_torch(NETWORKS[name]())
        gradients = make(layer, "cross_entropy")
        gradients(inputs, labels, SCALE)
        kept = 0
        if isinstance(gradients, StaticGradients):
            plan = gradients.compiled.plan(inputs, labels, torch.tensor(SCALE))
            kept = plan.num_bytes_kept
        for parameter in layers.parameters(layer):
            parameter.value.grad = None
        found[engine] = kept + peak_bytes(lambda run=gradients: run(inputs, labels, SCALE))
    return found


def chain(length: int) -> Callable[[], None]:
    """Record and differentiate a chain of operations."""

    def run() -> None:
        with Tape():
            start = value = Variable(torch.ones(()))
            for _ in range(length):
                value = value * 1.0001
            grad(value, [start])

    return run


def main() -> None:
    """Measure, print the tables, and fail when a promise is not kept."""
    parser = options("Our automatic differentiation against torch's.", rounds=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept = True
    for name in NETWORKS:
        rounds = arguments.rounds if name == "mlp" else max(5, arguments.rounds // 5)
        seconds = interleave(training_steps(name), rounds, warm_up=5)
        kept &= report(
            f"{name}: training step, batch {BATCH}", seconds, "torch", STEP_TARGETS[name], arguments.json
        )
        seconds = interleave(forward_passes(name), rounds, warm_up=5)
        report(f"{name}: forward pass, batch {BATCH}", seconds, "torch", (), arguments.json)
        memory = peak_memory(name)
        kept &= memory["static"] <= memory["dynamic"]
        show(
            arguments.json,
            f"{name}: most bytes held at once",
            {k: f"{v:,}" for k, v in memory.items()},
            memory,
        )
    lengths = (1_000, 10_000)
    seconds = interleave({str(n): chain(n) for n in lengths}, rounds=7, warm_up=1)
    per_operation = {f"{n:,} operations": sorted(seconds[str(n)])[3] / n for n in lengths}
    show(
        arguments.json,
        "a chain: time per operation, recorded and differentiated",
        {k: in_units(v) for k, v in per_operation.items()},
        per_operation,
    )
    raise SystemExit(0 if kept else 1)


def show(
    as_json: bool, title: str, words: dict[str, str], numbers: dict[str, int] | dict[str, float]
) -> None:
    """A small table that is no contest of clocks."""
    if as_json:
        print(json.dumps({"title": title, "machine": machine(), "cases": numbers}))
        return
    print(title)
    for case, text in words.items():
        print(f"  {case:20} {text:>14}")


if __name__ == "__main__":
    main()
