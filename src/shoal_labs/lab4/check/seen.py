"""What one worker's process records while the student's program runs, and how the driver collects it over RPC."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch.distributed.autograd as dist_autograd
from torch import Tensor
from torch.distributed import rpc

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.student import frames_in, place_in

LAYERS: dict[tuple[int, ...], str] = {
    (6, 1, 5, 5): "conv1",
    (16, 6, 5, 5): "conv2",
    (120, 400): "fc1",
    (10, 120): "fc2",
}
"""The lab's network: the shape of its weight names a layer."""
FIRST, LAST = "conv1", "fc2"


@dataclass(frozen=True)
class LayerCall:
    """One forward pass of one layer."""

    layer: str
    context: int | None
    """The context of distributed autograd in which it was made."""
    begin_ns: int
    tensor: Tensor | None
    """The input of the first layer, the output of the last."""


@dataclass(frozen=True)
class Loss:
    """One call of a loss: scores, labels, and the context in which it was made."""

    scores: Tensor
    labels: Tensor
    function: str
    """Of torch: `cross_entropy` or `nll_loss`."""
    context: int | None
    batches: Sequence[tuple[Tensor, Tensor]] = ()
    """Pictures and labels of the same length that the student's variables hold meanwhile."""


@dataclass(frozen=True)
class Held:
    """A parameter that a layer used: which object, its value, its gradient in a context."""

    identity: int
    value: Tensor
    grad: Tensor | None


@dataclass(frozen=True)
class Report:
    """What a worker tells the driver about itself."""

    worker: str
    calls: Sequence[LayerCall]
    parameters: Mapping[str, Held]
    """By the name of layer and parameter: `conv1.weight`."""
    other_weights: Sequence[tuple[int, ...]]
    """Shapes of weights that are not the lab's."""
    detached: Sequence[str]
    """Lines of the student's code that cut a tensor out of the graph."""
    seeded: str
    """The line that seeded this process's random numbers, if one did."""
    softmaxes: Sequence[tuple[Sequence[str], str]] = ()
    """The student's functions that were running in each softmax of a step, and its line."""


@dataclass(frozen=True)
class Backward:
    """A call of dist_autograd.backward."""

    context: int
    loss: float
    place: str


@dataclass(frozen=True)
class Step:
    """A step of the distributed optimizer, with all workers' reports before and after."""

    context: int | None
    place: str
    before: Sequence[Report]
    after: Sequence[Report]


@dataclass(frozen=True)
class Optimizer:
    """What DistributedOptimizer was given."""

    place: str
    kind: type
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    parameters: Sequence[tuple[str, int]]
    """Worker and identity of every parameter."""


@dataclass
class Seen:
    """The record of this process."""

    folder: str = ""
    held: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    calls: list[LayerCall] = field(default_factory=list[LayerCall])
    other_weights: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    detached: list[str] = field(default_factory=list[str])
    seeded: str = ""
    softmaxes: list[tuple[list[str], str]] = field(default_factory=list[tuple[list[str], str]])
    returned: tuple[str, float | None] | None = None
    """The type of what the first train_step returned, and its value if it is a number."""
    remote: bool = False
    """Whether this process called rpc.remote."""
    losses: list[Loss] = field(default_factory=list[Loss])
    contexts: dict[int, str] = field(default_factory=dict[int, str])
    """Every context that was entered, with its line."""
    entered_ns: dict[int, int] = field(default_factory=dict[int, int])
    active: set[int] = field(default_factory=set[int])
    optimizers: list[Optimizer] = field(default_factory=list[Optimizer])
    backwards: list[Backward] = field(default_factory=list[Backward])
    steps: list[Step] = field(default_factory=list[Step])
    stopped: Step | None = None
    """Without any step: the workers' records when the program stopped, if every sample had passed every layer."""
    empty: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Function and line that asked a module of remote references alone for its parameters."""

    def place(self, frame: FrameType | None = None) -> str:
        """The innermost line of the student's code that runs."""
        return place_in(self.folder, frame or sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def frames(self) -> Iterator[FrameType]:
        """The student's frames, the innermost first."""
        return frames_in(self.folder, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Pictures and labels of equal length among the variables of the student's functions that run now."""
        held = [
            value.detach().cpu().clone()
            for frame in self.frames()
            for value in list(frame.f_locals.values())
            if type(value) is Tensor
        ]
        pictures = [
            each for each in held if each.is_floating_point() and each.ndim > 1 and each[0].numel() == 784
        ]
        labels = [each for each in held if not each.is_floating_point() and each.ndim == 1]
        return [(images, right) for images in pictures for right in labels if len(images) == len(right)]

    def misplaced(self, reports: Sequence[Report], context: int, place: str) -> Fault | None:
        """Layers must run in the context of backward; the calls came earlier, or another thread made them."""
        calls = [call for report in reports for call in report.calls]
        if any(call.context is None and call.begin_ns > self.entered_ns[context] for call in calls):
            return fault("called_elsewhere", place=place, entered=self.contexts[context])
        if not any(call.context == context for call in calls):
            return fault("forward_outside", place=place, entered=self.contexts[context])
        return None


SEEN = Seen()
"""Of this process: functions that other workers call over RPC find it here."""


def outside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread of its own: contexts belong to threads, and the check's calls to none."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(function, *args).result()


def gather(context: int | None) -> list[Report]:
    """The reports of all workers."""
    return [rpc.rpc_sync(name, report, args=(name, context)) for name in worker_names()]


def worker_names() -> list[str]:
    """The names of all workers."""
    agent = rpc.api._get_current_rpc_agent()  # pyright: ignore[reportPrivateUsage]
    return sorted(info.name for info in agent.get_worker_infos())


def report(worker: str, context: int | None) -> Report:
    """What this worker has recorded; its gradients are those of the context."""
    try:
        grads: dict[Tensor, Tensor] = {} if context is None else dist_autograd.get_gradients(context)
    except RuntimeError:  # a worker that took no part does not know the context
        grads = {}
    return Report(
        worker,
        list(SEEN.calls),
        {
            name: Held(id(param), copied(param), copied(grads[param]) if param in grads else None)
            for name, param in SEEN.held.items()
        },
        list(SEEN.other_weights),
        list(SEEN.detached),
        SEEN.seeded,
        list(SEEN.softmaxes),
    )


def copied(tensor: Tensor) -> Tensor:
    """The tensor as it is now."""
    return tensor.detach().cpu().clone()


def identities(owners: list[str], params: list[Any]) -> list[int]:
    """The objects that references refer to, on their owners."""
    return [
        rpc.rpc_sync(owner, _identity, args=(param,)) for owner, param in zip(owners, params, strict=True)
    ]


def _identity(param: Any) -> int:
    return id(param.local_value())
