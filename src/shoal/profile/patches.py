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
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from shoal.comm.costs import sent_elements
from shoal.comm.group import Group
from shoal.comm.over_torch.torch_calls import (
    MESSAGES,
    Operation,
    first_tensor,
    name_of,
    peer_of,
    piece_of,
    replace_methods,
)
from shoal.comm.over_torch.torch_calls import replace as replace_in
from shoal.events.spans import EVALUATION, SAVE, SYNCHRONISE, host_ns
from shoal.profile.recorder import Call, Recorder

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
        replace = partial(replace_in, undo)
        replace(nn.Module, "__call__", lambda call: _forward(recorder, call))
        for name in ("backward", "grad"):
            replace(torch.autograd, name, lambda call: recorder.measuring("backward", "compute", call))
        replace(loader, "__next__", lambda call: recorder.measuring("data", "data", call))
        replace(torch, "save", lambda call: recorder.measuring(SAVE, "save", call))
        if torch.cuda.is_available() or is_remote is not _on_gpu:
            for name in _READS:
                replace(Tensor, name, lambda call: _reading(recorder, call, is_remote))
            replace(torch.cuda, "synchronize", lambda call: recorder.measuring(SYNCHRONISE, "compute", call))
        replace_methods(undo, calls.issuing)
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
        inputs = first_tensor([*args, *kwargs.values()])
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

    def issuing(self, method: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        """A method that issues calls."""

        def issue(group: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = host_ns()
            work = method(group, *args, **kwargs)
            if self._recorder.active and work is not None:
                self._open[work] = self._noted(group, operation, start_ns, args, work)
            return work

        return issue

    def _noted(
        self, group: Any, operation: Operation, start_ns: int, args: tuple[Any, ...], work: Any
    ) -> Call:
        name, rank, size = operation.name, group.rank(), group.size()
        piece = piece_of(operation, args)
        numel = 0 if piece is None else piece.numel()
        root = getattr(args[-1], "rootRank", 0) if args else 0
        elements = numel if name in MESSAGES else sent_elements(name, rank, size, numel, root)
        num_bytes = 0 if piece is None else elements * piece.element_size()
        call = self._recorder.issued(name, start_ns, num_bytes, name_of(group), peer_of(operation, args))
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
            call = self._recorder.issued("broadcast", start_ns, 0, name_of(group))
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
