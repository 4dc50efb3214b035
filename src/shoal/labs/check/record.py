"""Stand-ins that record what a student's program does: for its parser, its processes, its data, its clock, torch."""

import argparse
import builtins
import inspect
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Subset
from torch.utils.data import dataloader as loading

from shoal.labs.check.nodes import COLLECTIVE_LIMIT_S, COLLECTIVES
from shoal.labs.check.standins import gpu, vision
from shoal.labs.check.standins.clock import Clock

SAMPLES = 240
"""Of a training set: divisible by 2, 3 and 4 nodes, and enough for several batches."""
MOST_STEPS = 1500
PROBES = 3
"""Numbers that stand for a gradient: products with random vectors, which are linear in it."""
WORLD = (
    "n_devices",
    "world_size",
    "nprocs",
    "n_procs",
    "num_processes",
    "n_nodes",
    "num_nodes",
    "nodes",
    "size",
)
RANK = ("rank", "local_rank", "node_rank")
ADDRESS = {"master_addr": "127.0.0.1", "addr": "127.0.0.1", "master_port": "29500", "port": "29500"}
"""Flags of the course's scripts, and of others."""


class Enough(BaseException):
    """Ends the program: it has made as many steps, or taken as long, as the check allows."""


class OtherWorld(BaseException):
    """Ends the program: it wants another number of nodes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


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

    def note(self, kind: str, *values: Any) -> None:
        """Record an event with the student's line that caused it."""
        self.events.append([kind, self._place(), *values])

    def _place(self) -> str:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            if frame.f_code.co_filename.startswith(f"{self.folder}/"):
                return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count torch's functions meanwhile: a node that computes more than others is slower."""
        with self._count:
            yield

    def install(self) -> None:
        """Replace what the program uses, before its files are imported."""
        torch.manual_seed(
            self.rank
        )  # nodes are processes of their own, and begin with different random numbers
        random.seed(self.rank)
        for name, value in {"RANK": self.rank, "LOCAL_RANK": self.rank, "WORLD_SIZE": self.size}.items():
            if self.size > 1:
                os.environ[name] = str(value)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", MPLBACKEND="Agg")
        if torch.cuda.is_available():
            gpu.install()
        vision.NUM_TRAINED = SAMPLES
        vision.replace_data()
        sys.meta_path.append(_Missing())
        self._parser()
        self._processes()
        self._data()
        self._training()
        self._exchange()
        self._on_gpu()
        self.clock.install()
        self.clock.pretend_gpu()

    def _parser(self) -> None:
        original = argparse.ArgumentParser.parse_known_args

        def parse(parser: Any, args: Any = None, namespace: Any = None) -> Any:
            given = args or self._arguments(parser)
            return original(parser, given, namespace)

        changed: Any = argparse.ArgumentParser
        changed.parse_known_args = parse

    def _arguments(self, parser: argparse.ArgumentParser) -> list[str]:
        """Values for the flags that this parser has, as a launcher would give them."""
        own = {**dict.fromkeys(WORLD, self.size), **dict.fromkeys(RANK, self.rank), **ADDRESS, **self.flags}
        given: list[str] = []
        for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
            if action.dest == "help":
                continue
            switch = action.nargs == 0
            kind = getattr(action.type, "__name__", "switch" if switch else "str")
            choices = [str(each) for each in action.choices] if action.choices else []
            default = action.default if isinstance(action.default, str | int | float | bool) else None
            self.options.append({"name": action.dest, "kind": kind, "choices": choices, "default": default})
            if action.dest not in own:
                continue
            if not action.option_strings:
                given.append(str(own[action.dest]))
            elif not switch:
                given.append(f"{action.option_strings[-1]}={own[action.dest]}")
            elif own[action.dest] is True:
                given.append(action.option_strings[-1])
        return given

    def _processes(self) -> None:
        """Programs that start their nodes themselves: this process is one of them."""

        def spawn(
            fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *_: Any, **__: Any
        ) -> None:
            self._require(nprocs)
            fn(self.rank, *args)

        started = iter(range(1000))

        class Process:
            def __init__(
                self, *_: Any, target: Any = None, args: Any = (), kwargs: Any = None, **__: Any
            ) -> None:
                self._call = (target, args, kwargs or {}) if next(started) == recorder.rank else None

            def start(self) -> None:
                if self._call and self._call[0]:
                    self._call[0](*self._call[1], **self._call[2])

            def join(self, *_: Any) -> None:
                """It has ended."""

        recorder = self
        for module, name, instead in (
            *((mp, "spawn", spawn), (mp, "start_processes", spawn), (mp, "Process", Process)),
            (multiprocessing, "Process", Process),
        ):
            setattr(module, name, instead)

    def _require(self, size: int) -> None:
        if size != self.size:
            raise OtherWorld(size)

    def _data(self) -> None:
        create, signature = DataLoader.__init__, inspect.signature(DataLoader.__init__)
        iterate, next_index = DataLoader.__iter__, loading._BaseDataLoaderIter._next_index  # pyright: ignore
        alone = {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "timeout": 0}

        def created(loader: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(loader, *args, **kwargs)
            given.arguments.update(alone, prefetch_factor=None, multiprocessing_context=None)
            own = not given.arguments.get("sampler") and not given.arguments.get("batch_sampler")
            data = given.arguments["dataset"]
            if own and hasattr(data, "__len__") and len(data) > SAMPLES:
                given.arguments["dataset"] = Subset(data, range(SAMPLES))
            create(*given.args, **given.kwargs)

        def iterated(loader: Any) -> Iterator[Any]:
            sampler: Any = loader.sampler
            seed = getattr(sampler, "seed", None)
            self.note(
                "pass", _length(loader.dataset), type(sampler).__name__, seed if type(seed) is int else None
            )
            return iterate(loader)

        def indexed(iterator: Any) -> Any:
            indices = next_index(iterator)
            self.note(
                "batch", [int(each) for each in indices] if isinstance(indices, list) else [int(indices)]
            )
            return indices

        changed: Any = DataLoader
        changed.__init__, changed.__iter__ = created, iterated
        loading._BaseDataLoaderIter._next_index = indexed  # pyright: ignore

    def _training(self) -> None:
        functional: Any = nn.functional
        for name in ("cross_entropy", "nll_loss"):
            setattr(functional, name, self._loss(getattr(functional, name)))
        backward, build = Tensor.backward, builtins.__build_class__

        def went_back(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            if self._inside:  # torch calls it once more while functions are counted
                backward(loss, *args, **kwargs)
                return
            before = self._probed()
            self._inside += 1
            try:
                backward(loss, *args, **kwargs)
            finally:
                self._inside -= 1
            self.note("backward", before, self._probed())

        def built(*args: Any, **kwargs: Any) -> Any:
            made = build(*args, **kwargs)
            if args[0].__code__.co_filename.startswith(f"{self.folder}/") and callable(
                getattr(made, "step", None)
            ):
                self._own_optimizer(made)
            return made

        changed: Any = Tensor
        changed.backward = went_back
        builtins.__build_class__ = built
        register_optimizer_step_pre_hook(
            lambda optimizer, *_: self._step(
                optimizer, [param for group in optimizer.param_groups for param in group["params"]]
            )
        )
        create = Optimizer.__init__

        def created(optimizer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            create(optimizer, params, *args, **kwargs)
            self._latest = [param for group in optimizer.param_groups for param in group["params"]]

        changed_optimizer: Any = Optimizer
        changed_optimizer.__init__ = created

    def _loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(scores: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._inside == 0 and torch.is_grad_enabled():
                self.note("loss", len(labels) if labels.ndim else 1)
            self._inside += 1
            try:
                return original(scores, labels, *args, **kwargs)
            finally:
                self._inside -= 1

        return call

    def _own_optimizer(self, kind: Any) -> None:
        """Record the parameters and the steps of a class that the student has written."""
        own = vars(kind)
        if "__init__" in own:
            create = own["__init__"]

            def created(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                args = tuple(list(each) if isinstance(each, Iterator) else each for each in args)
                kwargs = {
                    key: list(each) if isinstance(each, Iterator) else each for key, each in kwargs.items()
                }
                for each in (*args, *kwargs.values()):
                    if isinstance(each, list) and each and all(isinstance(param, Tensor) for param in each):
                        self._params[id(optimizer)] = self._latest = each
                create(optimizer, *args, **kwargs)

            kind.__init__ = created
        if callable(own.get("step")):
            step = own["step"]

            def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                self._step(optimizer, self._params.get(id(optimizer), self._latest))
                self._inside += 1
                try:
                    return step(optimizer, *args, **kwargs)
                finally:
                    self._inside -= 1

            kind.step = stepped

    def _step(self, optimizer: Any, params: list[Tensor]) -> None:
        if self._inside:
            return
        self._latest = params
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
        join = dist.init_process_group

        def joined(*args: Any, **kwargs: Any) -> None:
            self._require(
                int(kwargs.get("world_size", -1)) if kwargs.get("world_size", -1) > 0 else self.size
            )
            join(
                "gloo",
                store=dist.FileStore(str(self.scratch / "store"), self.size),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=COLLECTIVE_LIMIT_S),
            )

        dist.init_process_group = joined
        for name in COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, self._collective(name, getattr(dist, name)))

    def _collective(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "barrier":
                self.note("collective", name)
            return original(*args, **kwargs)

        return call

    def _on_gpu(self) -> None:
        """Record whether the program puts anything on a GPU."""
        for kind in (Tensor, nn.Module):
            cuda, to = kind.cuda, kind.to

            def moved(thing: Any, *args: Any, _cuda: Any = cuda, **kwargs: Any) -> Any:
                self.note("gpu")
                return _cuda(thing, *args, **kwargs)

            def sent(thing: Any, *args: Any, _to: Any = to, **kwargs: Any) -> Any:
                if any(
                    "cuda" in str(each) for each in (*args, *kwargs.values()) if not isinstance(each, Tensor)
                ):
                    self.note("gpu")
                return _to(thing, *args, **kwargs)

            changed: Any = kind
            changed.cuda, changed.to = moved, sent
        torch.cuda.device_count = lambda: self.size

    def meet_at_the_end(self) -> None:
        """Wait for the other nodes: one that leaves early would disturb their last collectives."""
        (self.scratch / f"done-{self.rank}").touch()
        deadline_s = self._now() + COLLECTIVE_LIMIT_S
        while self._now() < deadline_s and any(
            not (self.scratch / f"done-{rank}").exists() for rank in range(self.size)
        ):
            time.sleep(0.02)


def _length(data: Any) -> int:
    return len(data) if hasattr(data, "__len__") else 0


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


class _Missing(MetaPathFinder, Loader):
    """Modules that draw curves, show progress or write logs, and are not installed here: they do nothing."""

    HARMLESS = frozenset(
        {
            *(
                "plotly",
                "pandas",
                "seaborn",
                "tqdm",
                "tensorboardX",
                "wandb",
                "swanlab",
                "visdom",
                "matplotlib",
            ),
            *(
                "torchsummary",
                "torchinfo",
                "thop",
                "psutil",
                "pynvml",
                "GPUtil",
                "prettytable",
                "loguru",
                "rich",
            ),
        }
    )

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A stand-in for a module that nothing else has found."""
        if fullname.partition(".")[0] not in self.HARMLESS:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        """A module whose every name does nothing; `tqdm` gives back what it is given."""
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__file__ = [], spec, ""
        if spec.name.startswith("tqdm"):
            made.tqdm = made.side_effect = lambda given=None, *_, **__: given
            made.trange = lambda *given, **_: range(*given)
        return made

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""
