"""Where a torch program is measured: functions and methods of torch, and of our groups, replaced while it runs.

| recorded | by |
|---|---|
| forward | `nn.Module.__call__` of the root module |
| backward | `torch.autograd.backward` and `grad`, which `Tensor.backward` calls |
| step | torch's hooks of all optimizers |
| data | `next()` of a `DataLoader`'s iterator |
| saving | `torch.save` |
| waits for a GPU | `item`, `tolist`, `cpu` and the like of a tensor on it, and `torch.cuda.synchronize` |
| collectives, messages | the methods of torch's process groups and of our groups, and `wait` of what they return |
| DDP's all-reduces | its reducer gets a process group that passes its calls on (`_Reduced`) |

Nothing is computed in another way: every call goes to the same function, with the same arguments.
"""

import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from shoal.comm.costs import sent_elements
from shoal.comm.group import Group
from shoal.events.spans import EVALUATION, SAVE, SYNCHRONISE, host_ns
from shoal.profile.recorder import Call, Recorder


class _Operation(NamedTuple):
    """A method of torch's process groups."""

    name: str
    piece: int = 0
    """The argument that has this worker's piece."""


_METHODS = {
    "allreduce": _Operation("all_reduce"), "allreduce_coalesced": _Operation("all_reduce"),
    "broadcast": _Operation("broadcast"), "reduce": _Operation("reduce"), "barrier": _Operation("barrier"),
    "allgather": _Operation("all_gather", 1), "_allgather_base": _Operation("all_gather", 1),
    "all_gather_single": _Operation("all_gather", 1), "allgather_coalesced": _Operation("all_gather", 1),
    "allgather_into_tensor_coalesced": _Operation("all_gather", 1), "gather": _Operation("gather", 1),
    "scatter": _Operation("scatter"), "reduce_scatter": _Operation("reduce_scatter"),
    "_reduce_scatter_base": _Operation("reduce_scatter"), "reduce_scatter_single": _Operation("reduce_scatter"),
    "reduce_scatter_tensor_coalesced": _Operation("reduce_scatter"), "alltoall": _Operation("all_to_all", 1),
    "send": _Operation("send"), "recv": _Operation("recv"), "recv_anysource": _Operation("recv"),
}  # fmt: skip


_READS = ("item", "tolist", "cpu", "__bool__", "__int__", "__float__", "to")
"""Methods that wait for a tensor on a GPU, `to` if it goes to the host."""


def _on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


@contextmanager
def patched(recorder: Recorder, is_remote: Callable[[Tensor], bool] = _on_gpu) -> Generator[None]:
    """Record what this process does in the body of the `with`; `is_remote` says which tensors the host waits for."""
    loader: Any = dataloader._BaseDataLoaderIter  # pyright: ignore[reportPrivateUsage]
    calls = _Calls(recorder)
    with ExitStack() as undo:

        def replace(place: Any, name: str, by: Callable[[Any], Any]) -> None:
            if hasattr(place, name):  # versions of torch differ
                if name in vars(place):
                    undo.callback(setattr, place, name, vars(place)[name])
                else:
                    undo.callback(delattr, place, name)
                setattr(place, name, by(getattr(place, name)))

        replace(nn.Module, "__call__", lambda call: _forward(recorder, call))
        for name in ("backward", "grad"):
            replace(torch.autograd, name, lambda call: recorder.measuring("backward", "compute", call))
        replace(loader, "__next__", lambda call: recorder.measuring("data", "data", call))
        replace(torch, "save", lambda call: recorder.measuring(SAVE, "save", call))
        if torch.cuda.is_available() or is_remote is not _on_gpu:
            for name in _READS:
                replace(Tensor, name, lambda call: _reading(recorder, call, is_remote))
            replace(torch.cuda, "synchronize", lambda call: recorder.measuring(SYNCHRONISE, "compute", call))
        for name, operation in _METHODS.items():
            replace(dist.ProcessGroup, name, lambda call, of=operation: calls.issuing(call, of))
        replace(dist.Work, "wait", calls.waiting)
        replace(dist, "_broadcast_coalesced", calls.broadcasting)
        replace(dist, "Reducer", calls.reducing)
        for name in ("_issue", "send", "recv"):
            replace(Group, name, lambda call, of=name: _of_our_group(recorder, call, of))
        started: dict[int, int] = {}

        def begin(optimizer: Any, *_: object) -> None:
            recorder.check_gradients([param for group in optimizer.param_groups for param in group["params"]])
            started[id(optimizer)] = host_ns()

        def end(optimizer: Any, *_: object) -> None:
            recorder.add("step", "compute", started.pop(id(optimizer), host_ns()))
            recorder.end_step()

        undo.callback(register_optimizer_step_pre_hook(begin).remove)
        undo.callback(register_optimizer_step_post_hook(end).remove)
        undo.callback(setattr, recorder, "active", False)
        yield


def _forward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling, thread = torch.compiler.is_compiling, recorder.thread

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or thread.inside:
            return call(self, *args, **kwargs)
        if not torch.is_grad_enabled():
            with recorder.span(EVALUATION, "compute"):
                return call(self, *args, **kwargs)
        recorder.model = weakref.ref(self)
        inputs = _first_tensor([*args, *kwargs.values()])
        recorder.rows += inputs.shape[0] if inputs is not None and inputs.ndim else 0
        with recorder.span("forward", "compute"):
            return call(self, *args, **kwargs)

    return forward


def _reading(
    recorder: Recorder, call: Callable[..., Any], is_remote: Callable[[Tensor], bool]
) -> Callable[..., Any]:
    """A method that waits until a tensor on a GPU is computed."""

    def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not (recorder.active and is_remote(self)):
            return call(self, *args, **kwargs)
        start_ns = host_ns()
        result = call(self, *args, **kwargs)
        if not (isinstance(result, Tensor) and is_remote(result)):
            recorder.add(SYNCHRONISE, "compute", start_ns)
        return result

    return read


class _Calls:
    """Calls of torch's process groups."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: weakref.WeakKeyDictionary[Any, Call] = weakref.WeakKeyDictionary()

    def issuing(self, method: Callable[..., Any], operation: _Operation) -> Callable[..., Any]:
        """A method that issues calls."""

        def issue(group: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = host_ns()
            work = method(group, *args, **kwargs)
            if self._recorder.active and work is not None:
                self._open[work] = self._noted(group, operation, start_ns, args, work)
            return work

        return issue

    def _noted(
        self, group: Any, operation: _Operation, start_ns: int, args: tuple[Any, ...], work: Any
    ) -> Call:
        name, rank, size = operation.name, group.rank(), group.size()
        piece = _first_tensor(args[operation.piece] if len(args) > operation.piece else None)
        is_message = name in ("send", "recv")
        numel = 0 if piece is None else piece.numel()
        root = getattr(args[-1], "rootRank", 0) if args else 0
        elements = numel if is_message else sent_elements(name, rank, size, numel, root)
        num_bytes = 0 if piece is None else elements * piece.element_size()
        peer = args[1] if is_message and len(args) > 2 else -1
        call = self._recorder.issued(name, start_ns, num_bytes, _name_of(group), peer)
        if name == "all_reduce" and piece is not None and piece.is_cpu:

            def done(_: object) -> None:
                if call.done_ns is None:
                    call.done_ns = host_ns()

            call.tells_done = True
            work.get_future().add_done_callback(done)
        return call

    def waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`Work.wait`."""

        def waiting(work: Any, *args: Any, **kwargs: Any) -> Any:
            call, start_ns = self._open.pop(work, None), host_ns()
            result = wait(work, *args, **kwargs)
            if call is not None:
                self._recorder.waited(call, start_ns, host_ns())
            return result

        return waiting

    def broadcasting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """DDP's copy of rank 0's buffers, which returns when it is done."""

        def broadcast(group: Any, tensors: Any, *args: Any) -> Any:
            start_ns = host_ns()
            call = self._recorder.issued("broadcast", start_ns, 0, _name_of(group))
            result = function(group, tensors, *args)
            self._recorder.waited(call, call.issue.end_ns, host_ns())
            return result

        return broadcast

    def reducing(self, reducer: Callable[..., Any]) -> Callable[..., Any]:
        """DDP's reducer, with a process group whose calls are seen."""

        def reduced(params: Any, buckets: Any, sizes: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._recorder.active:
                return reducer(params, buckets, sizes, group, *args, **kwargs)
            try:
                seen = _Reduced(group)
            except (
                AttributeError,
                KeyError,
                RuntimeError,
            ):  # an unknown backend: its calls are part of backward
                return reducer(params, buckets, sizes, group, *args, **kwargs)
            made = reducer(params, buckets, sizes, seen, *args, **kwargs)
            weakref.finalize(made, lambda _: None, seen)  # C++ does not keep its methods alive
            return made

        return reduced


class _Reduced(dist.ProcessGroup):
    """A process group that calls another one's methods from Python, where calls are recorded."""

    def __init__(self, group: Any) -> None:
        super().__init__(group.rank(), group.size())  # pyright: ignore[reportCallIssue]
        self._group = group
        for device in group._device_types:
            backend = group._get_backend(device)
            kind = dist.Backend.backend_type_map[backend.name()]
            self._register_backend(device, kind, backend)  # pyright: ignore[reportAttributeAccessIssue]
            self._set_default_backend(kind)  # pyright: ignore[reportAttributeAccessIssue]
        self._set_group_name(group.group_name)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sum a bucket."""
        return self._group.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Copy the plan of the buckets."""
        return self._group.broadcast(tensors, opts)


class _OurWork:
    """A work of one of our groups that is recorded when it has been waited for."""

    def __init__(self, recorder: Recorder, call: Call, work: Any) -> None:
        self._recorder, self._call, self._work = recorder, call, work

    def wait(self) -> None:
        start_ns = host_ns()
        self._work.wait()
        self._recorder.waited(self._call, start_ns, host_ns())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _of_our_group(recorder: Recorder, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def issue(group: Group, first: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = host_ns()
        work = call(group, first, *args, **kwargs)
        if not recorder.active:
            return work
        # The members of a smaller group are not known: its calls are joined with no other worker's.
        known = "shoal" if group.size == recorder.workers else f"shoal of rank {recorder.rank}"
        if name == "_issue":
            elements = sent_elements(first.operation, group.rank, group.size, first.numel, first.root or 0)
            noted = recorder.issued(first.operation, start_ns, elements * first.dtype.itemsize, known)
        else:
            peer = [*args, *kwargs.values()][0]
            noted = recorder.issued(name, start_ns, first.nbytes, known, peer)
        return _OurWork(recorder, noted, work)

    return issue


def _first_tensor(given: Any) -> Tensor | None:
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return given if isinstance(given, Tensor) else None


def _name_of(group: Any) -> str:
    """`world`, or for a smaller group `world[0,2]`, as our own groups are called."""
    ranks = dist.get_process_group_ranks(group)
    return "world" if len(ranks) == dist.get_world_size() else f"world[{','.join(map(str, ranks))}]"
