"""One network on three engines: our tape, our static graph, and torch's autograd beside them as a yardstick."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from shoal import models
from shoal.kit.autograd import (
    BatchGradients,
    Stage,
    StaticGradients,
    StaticPlan,
    Variable,
    compile_graph,
    no_record,
    static_gradients,
    tape_gradients,
)
from shoal.kit.autograd import nn as layers
from shoal.kit.base import WorkerError
from shoal.kit.findings import Measured, inside_run
from shoal.kit.settings import LenetConfig, MlpConfig
from shoal_labs.autograd.course import relative
from shoal_labs.autograd.plan import ENGINES, INPUT_SHAPE, OUTPUTS, AutogradPlan
from shoal_labs.timing.contest import Contest, contest

CONFIGS: dict[str, MlpConfig | LenetConfig] = {"mlp": MlpConfig(), "lenet": LenetConfig()}
RATE = 1e-3
"""Learning rate of the steps: small, for the same batch is seen again and again."""

TIMEOUT_S = 120.0
"""Of a fresh process that compiles."""

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Network:
    """What was measured of one network."""

    name: str
    parameters: int
    step: Contest
    """A training step: forward, backward, update."""
    forward: Mapping[int, Contest]
    """A forward pass, by the number of samples."""
    cold_ms: tuple[float, ...]
    """The first compilation in a process, of several processes."""
    again_ms: Measured
    """A later one."""
    peak: Mapping[str, int]
    """The most bytes held at once in a step, by engine."""
    stages: tuple[Stage, ...]
    """The graph of a training step as written and after each pass."""
    separate_bytes: int
    """The arena if every value had memory of its own."""
    planned_bytes: int
    difference: float
    """Of the static gradients from the dynamic ones, relative to the largest in each tensor."""


def measure_network(name: str, plan: AutogradPlan) -> Network:
    """Everything about one network."""
    batch = random_batch(plan.batch_size, plan.seed)
    static = _static_plan(name, plan.seed, batch)
    return Network(
        name=name,
        parameters=sum(param.numel() for param in module_of(name, plan.seed).parameters()),
        step=contest(training_steps(name, plan.seed, batch), plan.rounds, plan.contest_s),
        forward={
            size: contest(forward_passes(name, plan.seed, size), plan.rounds, plan.contest_s)
            for size in (1, plan.batch_size)
        },
        cold_ms=cold_compile_ms(name, plan.batch_size, plan.seed, plan.fresh_processes),
        again_ms=inside_run(
            [time_compilation_ms(name, plan.seed, batch) for _ in range(max(2, plan.compilations))]
        ),
        peak={engine: peak_of(engine, name, plan.seed, batch) for engine in ENGINES},
        stages=tuple(static.stages),
        separate_bytes=static.unshared_bytes,
        planned_bytes=static.memory.num_bytes,
        difference=gradient_difference(name, plan.seed, batch),
    )


def module_of(name: str, seed: int) -> nn.Module:
    """The network with initial weights that depend on the seed alone."""
    return models.build(CONFIGS[name], INPUT_SHAPE, OUTPUTS, seed)


def random_batch(size: int, seed: int) -> Batch:
    """Images and labels: what they show does not matter to a clock."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(size, *INPUT_SHAPE, generator=generator)
    return images, torch.randint(0, OUTPUTS, (size,), generator=generator)


OURS: dict[str, Callable[[layers.Layer], BatchGradients]] = {
    "dynamic": tape_gradients,
    "static": static_gradients,
}


def gradients_of(engine: str, name: str, seed: int) -> tuple[Callable[[Batch], object], list[Tensor]]:
    """What turns a batch into gradients, and the tensors they are of; each engine has a network of its own."""
    module = module_of(name, seed)
    if engine == "torch":

        def by_torch(batch: Batch) -> object:
            images, labels = batch
            loss = F.cross_entropy(module(images), labels, reduction="sum")
            return loss.backward(torch.full_like(loss, 1 / len(labels)))

        return by_torch, list(module.parameters())
    layer = layers.from_torch(module)
    compute = OURS[engine](layer)

    def by_us(batch: Batch) -> object:
        images, labels = batch
        return compute(images, labels, 1 / len(labels))

    return by_us, [parameter.value for parameter in layers.parameters(layer)]


def training_steps(name: str, seed: int, batch: Batch) -> dict[str, Callable[[], object]]:
    """One training step of every engine, with the same kind of optimizer."""
    return {engine: _training_step(engine, name, seed, batch) for engine in ENGINES}


def _training_step(engine: str, name: str, seed: int, batch: Batch) -> Callable[[], object]:
    gradients, params = gradients_of(engine, name, seed)
    optimizer = torch.optim.SGD(params, lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        gradients(batch)
        optimizer.step()

    return step


def forward_passes(name: str, seed: int, size: int) -> dict[str, Callable[[], object]]:
    """One forward pass of every engine; nothing is kept for a backward pass."""
    images, _ = random_batch(size, seed)
    module = module_of(name, seed)
    layer = layers.from_torch(module)
    compiled = compile_graph(layer, images)

    def by_torch() -> None:
        with torch.no_grad():
            module(images)

    def dynamic() -> None:
        with no_record():
            layer(Variable(images))

    return {"dynamic": dynamic, "static": lambda: compiled(images), "torch": by_torch}


def peak_of(engine: str, name: str, seed: int, batch: Batch) -> int:
    """The most bytes beyond weights and batch in a step, with what a plan keeps between steps."""
    gradients, params = gradients_of(engine, name, seed)
    gradients(batch)
    for param in params:
        param.grad = None
    kept = _static_plan(name, seed, batch).num_bytes_kept if engine == "static" else 0
    return kept + peak_bytes(lambda: gradients(batch))


def gradient_difference(name: str, seed: int, batch: Batch) -> float:
    """How far the static gradients are from the dynamic ones."""
    found: dict[str, list[Tensor]] = {}
    for engine in OURS:
        gradients, params = gradients_of(engine, name, seed)
        gradients(batch)
        found[engine] = [param.grad.clone() for param in params if param.grad is not None]
    pairs = zip(found["static"], found["dynamic"], strict=True)
    return max(relative(static, dynamic) for static, dynamic in pairs)


def _static_plan(name: str, seed: int, batch: Batch) -> StaticPlan:
    gradients = static_gradients(layers.from_torch(module_of(name, seed)))
    return _plan_for(gradients, batch)


def _plan_for(gradients: StaticGradients, batch: Batch) -> StaticPlan:
    images, labels = batch
    return gradients.compiled.plan(images, labels, torch.tensor(1 / len(labels)))


def time_compilation_ms(name: str, seed: int, batch: Batch) -> float:
    """Milliseconds of compiling a training step in this process."""
    gradients = static_gradients(layers.from_torch(module_of(name, seed)))
    start_s = time.perf_counter()
    _plan_for(gradients, batch)
    return 1e3 * (time.perf_counter() - start_s)


def cold_compile_ms(network: str, batch_size: int, seed: int, processes: int) -> tuple[float, ...]:
    """Milliseconds of a training step's first compilation, over some fresh processes.

    It is what a program that compiles once has to wait for: it loads modules of torch, and a second compilation takes
    a fraction of its time. `python -P -m shoal_labs.autograd.networks NETWORK BATCH SEED` prints it.
    """
    return tuple(_in_a_fresh_process(network, batch_size, seed) for _ in range(processes))


def _in_a_fresh_process(network: str, batch_size: int, seed: int) -> float:
    command = [
        sys.executable,
        "-P",
        "-m",
        "shoal_labs.autograd.networks",
        network,
        str(batch_size),
        str(seed),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
    )
    if made.returncode:
        raise WorkerError(f"compiling {network} in a fresh process failed", made.stderr.strip()[-500:], 1)
    return float(made.stdout.split()[-1])


def peak_bytes(work: Callable[[], object]) -> int:
    """Bytes beyond what was there before `work` began.

    >>> import torch
    >>> peak_bytes(lambda: torch.ones(1024) + 1.0) >= 2 * 4096
    True
    """
    with _no_announcements(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    for event in record.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            held += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
            most = max(most, held)
    return most


@contextmanager
def _no_announcements() -> Generator[None]:
    """The profiler writes lines of its own to the terminal unless its log level is raised before its first use."""
    name = "KINETO_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ.setdefault(name, "99")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)


def main(network: str, batch_size: str, seed: str) -> None:
    """Compile once, and print how long it took (`cold_compile_ms`)."""
    batch = random_batch(int(batch_size), int(seed))
    sys.stdout.write(f"{time_compilation_ms(network, int(seed), batch):.3f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
