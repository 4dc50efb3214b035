"""Records what a student's program does: its data, its training, its collectives, its clock."""

import builtins
import inspect
import os
import random
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Subset
from torch.utils.data import dataloader as loading

from shoal_labs.check.nodes import COLLECTIVE_LIMIT_S, COLLECTIVES
from shoal_labs.check.standins import gpu, launch, packages
from shoal_labs.check.standins.clock import Clock
from shoal_labs.check.standins.gpu import PENDING, Handle
from shoal_labs.check.standins.replace import instead_of
from shoal_labs.check.student import frames_in, place_in

SAMPLES = 240
"""Of a training set: divisible by 2, 3 and 4 nodes, and enough for several batches."""
MOST_STEPS = 1500
FEW = 100
"""A tensor with so few numbers is a loss or a count: gradients of a network have more."""
PROBES = 3
"""Numbers that stand for a gradient: products with random vectors, which are linear in it."""


class Enough(BaseException):
    """Ends the program: it has made as many steps, or taken as long, as the check allows."""


class Recorder:
    """The record of one node, and the stand-ins that make it."""

    def __init__(
        self, rank: int, size: int, folder: str, flags: dict[str, Any], scratch: Path, limit_s: float
    ) -> None:
        self.rank, self.size, self.folder, self.flags, self.scratch = rank, size, folder, flags, scratch
        self.events: list[list[Any]] = []
        self.options: list[dict[str, Any]] = []
        self.clock = Clock(self.note, folder)
        self._deadline_s, self._steps, self._inside, self._count = time.monotonic() + limit_s, 0, 0, _Count()
        self._now = time.monotonic
        self._params: dict[int, list[Tensor]] = {}
        self._latest: list[Tensor] = []

    def note(self, kind: str, *values: Any) -> str:
        """Record an event with the student's line that caused it; the kind of the one before."""
        before = self.events[-1][0] if self.events else ""
        self.events.append([kind, place_in(self.folder), *values])
        return before

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count torch's functions meanwhile: a node that computes more than others is slower."""
        with self._count:
            yield

    def install(self) -> None:
        """Replace what the program uses, before its files are imported."""
        # Nodes are processes of their own, and begin with different random numbers.
        torch.manual_seed(self.rank)
        random.seed(self.rank)
        for name, value in {"RANK": self.rank, "LOCAL_RANK": self.rank, "WORLD_SIZE": self.size}.items():
            if self.size > 1:
                os.environ[name] = str(value)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", MPLBACKEND="Agg")
        if torch.cuda.is_available():
            gpu.install()
        packages.NUM_TRAINED = SAMPLES
        packages.replace_data()
        packages.ignore_missing()
        launch.give_arguments(self.rank, self.size, self.flags, self.options)
        launch.be_one_process(self.rank, self.size)
        self._data()
        self._training()
        self._exchange()
        self._on_gpu()
        self.clock.install()
        self.clock.pretend_gpu()

    def _data(self) -> None:
        signature = inspect.signature(DataLoader.__init__)
        alone = {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "timeout": 0}

        @instead_of(DataLoader, "__init__")
        def created(create: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(loader, *args, **kwargs)
            given.arguments.update(alone, prefetch_factor=None, multiprocessing_context=None)
            own = not given.arguments.get("sampler") and not given.arguments.get("batch_sampler")
            data = given.arguments["dataset"]
            if own and hasattr(data, "__len__") and len(data) > SAMPLES:
                given.arguments["dataset"] = Subset(data, range(SAMPLES))
            create(*given.args, **given.kwargs)

        @instead_of(DataLoader, "__iter__")
        def iterated(iterate: Any, loader: Any) -> Iterator[Any]:
            seed = getattr(loader.sampler, "seed", None)
            seed = seed if type(seed) is int else None
            self.note("pass", _length(loader.dataset), type(loader.sampler).__name__, seed, _length(loader))
            return iterate(loader)

        @instead_of(loading._BaseDataLoaderIter, "_next_index")  # pyright: ignore[reportPrivateUsage]
        def indexed(next_index: Any, iterator: Any) -> Any:
            indices = next_index(iterator)
            self.note("batch", [int(each) for each in (indices if isinstance(indices, list) else [indices])])
            return indices

    def _training(self) -> None:
        @instead_of(nn.functional, "cross_entropy", "nll_loss")
        def lost(original: Any, scores: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
            with self._inside_of_torch():
                loss = original(scores, labels, *args, **kwargs)
            if self._inside == 0 and torch.is_grad_enabled():
                twice = original.__name__ == "cross_entropy" and _are_probabilities(scores)
                count = len(labels) if labels.ndim else 1
                divisor = count if kwargs.get("reduction") == "sum" else 1
                self.note("loss", count, twice, _mean(loss) / divisor)
            return loss

        @instead_of(Tensor, "backward")
        def went_back(backward: Any, loss: Tensor, *args: Any, **kwargs: Any) -> None:
            if self._inside:  # torch calls it once more while functions are counted
                backward(loss, *args, **kwargs)
                return
            before = self._probed()
            with self._inside_of_torch():
                backward(loss, *args, **kwargs)
            self.note("backward", before, self._probed(), _mean(loss))

        @instead_of(builtins, "__build_class__")
        def built(build: Any, *args: Any, **kwargs: Any) -> Any:
            made, is_students = (
                build(*args, **kwargs),
                args[0].__code__.co_filename.startswith(f"{self.folder}/"),
            )
            if is_students and callable(getattr(made, "step", None)):
                self._own_optimizer(made)
            return made

        @instead_of(Optimizer, "__init__")
        def created(create: Any, optimizer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            create(optimizer, params, *args, **kwargs)
            self._latest = _params_of(optimizer)
            self.note("optimizer")

        register_optimizer_step_pre_hook(lambda optimizer, *_: self._step(optimizer, _params_of(optimizer)))

    @contextmanager
    def _inside_of_torch(self) -> Generator[None]:
        """What is called meanwhile is not the program's own call."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _own_optimizer(self, kind: Any) -> None:
        """Record the parameters and the steps of a class that the student has written."""
        if "__init__" in vars(kind):

            @instead_of(kind, "__init__")
            def created(create: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
                given = [
                    list(each) if isinstance(each, Iterator) else each for each in (*args, *kwargs.values())
                ]
                for each in given:
                    if isinstance(each, list) and each and all(isinstance(param, Tensor) for param in each):
                        self._params[id(optimizer)] = self._latest = each
                        self.note("optimizer")
                named = dict(zip(kwargs, given[len(args) :], strict=True))
                create(optimizer, *given[: len(args)], **named)

        if callable(vars(kind).get("step")):

            @instead_of(kind, "step")
            def stepped(step: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                self._step(optimizer, self._params.get(id(optimizer), self._latest))
                with self._inside_of_torch():
                    return step(optimizer, *args, **kwargs)

    def _step(self, optimizer: Any, params: list[Tensor]) -> None:
        if self._inside:
            return
        self._latest = params
        self.events += [["unwaited", each.place, each.functions] for each in PENDING if each.place]
        PENDING.clear()
        grads = self._probed()
        values = [] if not params else _probes(params)
        self.note("step", type(optimizer).__name__, grads, values, self._count.taken(), self.clock.now_s)
        self._steps += 1
        if self._steps >= MOST_STEPS or self._now() > self._deadline_s:
            raise Enough

    def _probed(self) -> list[float]:
        """Numbers that stand for the gradient; zeros without one."""
        grads = [param.grad for param in self._latest if param.grad is not None]
        return _probes(grads) if grads else [0.0] * PROBES

    def _exchange(self) -> None:
        @instead_of(dist, "init_process_group")
        def joined(join: Any, *args: Any, **kwargs: Any) -> None:
            asked = int(kwargs.get("world_size", -1))
            launch.require(asked if asked > 0 else self.size, self.size)
            join(
                "gloo",
                store=dist.FileStore(str(self.scratch / "store"), self.size),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=COLLECTIVE_LIMIT_S),
            )

        @instead_of(dist, *filter(dist.__dict__.__contains__, COLLECTIVES))
        def collective(original: Any, *args: Any, **kwargs: Any) -> Any:
            tensors, name = _tensors(args, kwargs), original.__name__
            if name != "barrier":
                own_group = any(isinstance(each, dist.ProcessGroup) for each in (*args, *kwargs.values()))
                self.note("collective", name, -1 if own_group else self._number(tensors))
            result = original(*args, **kwargs)
            if isinstance(result, Handle) and any(each.numel() > FEW for each in tensors):
                result.place = place_in(self.folder)
                result.functions = [frame.f_code.co_name for frame in frames_in(self.folder)]
            return result

    def _number(self, tensors: Sequence[Tensor]) -> int:
        """The number of the parameter whose gradient is among these; -1 without one."""
        grads = [0 if each.grad is None else each.grad.data_ptr() for each in self._latest]
        return next((grads.index(each.data_ptr()) for each in tensors if each.data_ptr() in grads), -1)

    def _on_gpu(self) -> None:
        """Record whether the program puts anything on a GPU."""
        for kind in (Tensor, nn.Module):

            @instead_of(kind, "cuda", "to")
            def moved(original: Any, thing: Any, *args: Any, **kwargs: Any) -> Any:
                given = [str(each) for each in (*args, *kwargs.values()) if not isinstance(each, Tensor)]
                if original.__name__ == "cuda" or any("cuda" in each for each in given):
                    self.note("gpu")
                return original(thing, *args, **kwargs)

        torch.cuda.device_count = lambda: self.size

    def meet_at_the_end(self) -> None:
        """Wait for the other nodes: one that leaves early would disturb their last collectives."""
        (self.scratch / f"done-{self.rank}").touch()
        deadline_s = self._now() + COLLECTIVE_LIMIT_S
        while self._now() < deadline_s and any(
            not (self.scratch / f"done-{rank}").exists() for rank in range(self.size)
        ):
            time.sleep(0.02)


def _are_probabilities(scores: Tensor) -> bool:
    """Whether each row is the output of a softmax."""
    with torch.no_grad(), torch._C.DisableTorchFunction():  # pyright: ignore
        rows = scores.detach().double()
        return bool(len(rows) and (rows >= 0).all() and ((rows.sum(dim=-1) - 1).abs() < 1e-4).all())


def _params_of(optimizer: Any) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:  # a stream has no length
        return 0


def _mean(values: Tensor) -> float:
    with torch.no_grad(), torch._C.DisableTorchFunction():  # pyright: ignore
        return values.detach().double().mean().item()


def _tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among arguments, and in lists among them."""
    given = [*args, *kwargs.values()]
    inner = [part for each in given if isinstance(each, list | tuple) for part in cast("Sequence[Any]", each)]
    return [each for each in (*given, *inner) if isinstance(each, Tensor)]


_VECTORS: dict[tuple[int, int], Tensor] = {}


def _probes(tensors: Sequence[Tensor]) -> list[float]:
    """Products of all numbers with a few fixed vectors: equal for equal tensors, and linear."""
    with torch.no_grad(), torch._C.DisableTorchFunction():  # pyright: ignore
        flat = torch.cat([each.detach().flatten() for each in tensors]).double()
        found: list[float] = []
        for number in range(PROBES):
            if (number, len(flat)) not in _VECTORS:
                generator = torch.Generator().manual_seed(number)
                _VECTORS[number, len(flat)] = torch.randn(len(flat), generator=generator, dtype=torch.float64)
            found.append(torch.dot(flat, _VECTORS[number, len(flat)]).item())
    return found


class _Count(TorchFunctionMode):
    """Counts calls of torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._calls += 1
        return func(*args, **(kwargs or {}))

    def taken(self) -> int:
        """The calls since the last time."""
        calls, self._calls = self._calls, 0
        return calls
