"""`shoal.DistributedDataParallel`: data parallelism for a training loop of your own, with torch's verbs."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
import torch.distributed as dist
from torch import nn

from shoal.comm.agree import check_same_model
from shoal.comm.from_torch import group_beside
from shoal.comm.group import Group
from shoal.comm.threads import ThreadGroup
from shoal.errors import ConfigError
from shoal.parallel.buckets import MIB
from shoal.parallel.comm_hook import Hook
from shoal.parallel.copies import Copies
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.exchange.linear import AllReduce
from shoal.parallel.reducer import Reducer
from shoal.parallel.roll_call import RollCall
from shoal.parallel.sync_batchnorm import give_group
from shoal.parallel.torch_options import check_torch_options, moved_to


@dataclass
class _Now:
    """Where a wrapper stands. Not attributes of the module itself: those take torch many times as long to set."""

    weight: float
    """What this worker's gradients count for: 1 / size, or its part of all samples."""
    exchanges: bool = True
    """Whether backward exchanges; decided by the last forward pass, as under torch."""
    in_no_sync: bool = False
    num_exchanges: int = 0
    hook_divides: bool = False
    """Whether the division by the number of workers is left to a hook of the program's own."""
    roll_call: RollCall | None = None
    """Inside `join`."""
    counts_present: bool = False
    """Inside `join`: whether gradients are divided by the number of those who still have inputs."""
    buffers_from: int = 0
    """Whose buffers everyone takes."""


@final
class DistributedDataParallel(nn.Module):
    """A replica of a model whose gradients, after `backward()`, are those of all workers together.

    ::

        model = shoal.DistributedDataParallel(model)
        for inputs, labels in loader:                           # this worker's samples
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()   # exchanged when this returns
            optimizer.step()                                    # the same update on every worker

    *What the gradients mean.* A wrapper sees neither how many samples a worker has nor what the loss divides by.
    So, as with torch's wrapper, it takes the mean over workers: `Σ gᵢ / size`. That is the gradient over all samples
    if each loss is a mean and all workers have equally many samples; if not, samples of a small share count more.
    `batch(num_samples=n)` makes it exact: `Σ (nᵢ / Σn)·gᵢ`, where gᵢ is the gradient of the mean over nᵢ samples::

        with model.batch(num_samples=len(labels)):              # also 0: then there is nothing to compute
            if len(labels):
                F.cross_entropy(model(inputs), labels).backward()

    Accumulate under `no_sync()`: gradients stay this worker's own until the first backward outside of it. Loops that
    end earlier on some workers run under `join()`.

    `group` is the workers; none: those of `torch.distributed` if the program has initialised it (`process_group` names
    others than all), else `shoal.join()`. Several wrappers of one program share one group: hand it over. `exchange` is
    how a bucket becomes the aggregate, the all-reduce if not given. `unused="zero"` allows parameters that no gradient
    reaches; they are named in an error otherwise.

    The keywords of torch's wrapper are taken with torch's meaning: `device_ids` (one), `broadcast_buffers`,
    `init_sync`, `bucket_cap_mb`, `find_unused_parameters` (`unused="zero"`); `gradient_as_bucket_view`, `static_graph`
    and `check_reduction` change nothing here. What cannot be honoured is refused by name. `register_comm_hook` takes
    torch's hooks.

    Construction gives every worker rank 0's parameters and buffers; buffers (running statistics) become rank 0's again
    with every exchange. In a world of one no hook is installed and nothing is shared.

    Costs: one exchange for every 25 MiB of gradients, starting while backward is still at work; memory for the
    gradients once more while backward hands them over.

    Not safe: workers that exchange differently often; `backward(create_graph=True)`; a forward pass of which only some
    workers make use.

    >>> model = DistributedDataParallel(nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).mean().backward()
    >>> list(model.state_dict()), model.module.bias.grad
    (['module.weight', 'module.bias'], tensor([1.]))
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group | Sequence[int | torch.device | str] | None = None,
        *,
        exchange: Exchange | None = None,
        unused: Literal["refuse", "zero"] = "refuse",
        device_ids: Sequence[int | torch.device | str] | None = None,
        process_group: Any = None,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        **others: Any,
    ) -> None:
        super().__init__()
        params = {name: param for name, param in module.named_parameters() if param.requires_grad}
        if isinstance(group, Sequence):  # torch's second argument
            group, device_ids = None, group
        self._device = check_torch_options(module, params, device_ids, others)
        if group is not None and not hasattr(group, "all_reduce"):
            raise ConfigError(f"the second argument is a group of workers, or device_ids, not {group!r}")
        self.module = module
        self._group = group if group is not None else _default_group(process_group, params)
        _check_threads(self._group, params)
        self._now = _Now(1 / self._group.size)
        self._reducer: Reducer | None = None
        self._shared_buffers: Copies | None = None
        if self._group.size > 1:
            state = module.state_dict()
            if init_sync:
                check_same_model(self._group, state)
                for tensor in state.values():
                    self._group.broadcast(tensor).wait()
            now = self._now
            give_group(module, self._group, lambda: now.weight)
            buffers = [*module.buffers()]
            if broadcast_buffers and buffers:
                self._shared_buffers = Copies(self._group, buffers)
            self._reducer = Reducer(
                self._group,
                exchange or AllReduce(),
                params,
                lambda param, callback: param.register_post_accumulate_grad_hook(callback).remove,
                first_bytes=MIB,
                most_bytes=int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB),
                unused="zero" if find_unused_parameters else unused,
                begins=self._backward_begins,
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output."""
        if torch.is_grad_enabled():
            self._now.exchanges = not self._now.in_no_sync
        if self._device is not None:
            args, kwargs = moved_to(self._device, args), moved_to(self._device, kwargs)
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Gradients of forward passes begun in here stay this worker's own, and are added up."""
        before, self._now.in_no_sync = self._now.in_no_sync, True
        try:
            yield
        finally:
            self._now.in_no_sync = before

    @contextmanager
    def batch(self, num_samples: int) -> Generator[None]:
        """Around one update's passes: the loss in here is a mean over `num_samples` samples of this worker.

        All workers enter it together, those without samples too; it has one small all-reduce. With accumulation,
        `num_samples` counts all parts together, and the sum of their losses is the mean over them.
        """
        if num_samples < 0:
            raise ConfigError(f"num_samples must be 0 or more, not {num_samples}")
        if self._reducer is None:
            yield
            return
        if self._now.roll_call is not None:
            raise ConfigError(
                "batch() cannot be inside join(): whoever has ended would have to enter it too",
                "Use one of them: under batch(num_samples=0) a worker gives nothing, and gradients are exact.",
            )
        total = torch.tensor([float(num_samples)], dtype=torch.float64)
        self._group.all_reduce(total).wait()
        everyones = total.item()
        if not everyones:
            raise ConfigError("no worker has a sample: batch(num_samples=0) on all of them")
        now = self._now
        before, now.weight = now.weight, num_samples / everyones
        exchanges = now.num_exchanges
        try:
            yield
            if now.num_exchanges == exchanges:
                if num_samples:
                    raise ConfigError(
                        f"batch(num_samples={num_samples}) ended without an exchange: the others wait for it",
                        "Inside, call backward() at least once, outside of no_sync().",
                    )
                self._finish()
        finally:
            now.weight = before

    def _backward_begins(self) -> None:
        """The first gradient of a pass is final: from here on, if this pass exchanges, buckets may go."""
        if not self._now.exchanges or self._reducer is None:
            return
        if torch.is_grad_enabled():
            raise ConfigError(
                "backward(create_graph=True) cannot pass through an exchange of gradients",
                "Take second derivatives with torch.autograd.grad on model.module, or under no_sync().",
            )
        weight = self._now.weight
        if self._now.roll_call is not None:
            weight = self._called(here=True)
        self._reducer.prepare(weight * self._group.size if self._now.hook_divides else weight)
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)  # pyright: ignore[reportPrivateUsage]

    def _finish(self) -> None:
        """Backward is over: wait until all gradients are everyone's."""
        if self._reducer is not None:
            self._reducer.complete()
            if self._shared_buffers is not None:
                self._shared_buffers.update(self._now.buffers_from)
            self._reducer.wait()
            self._now.num_exchanges += 1

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Generator[None]:
        """Around a loop that may end earlier on some workers: those that have ended take part with zeros.

        As under torch's wrapper, gradients are divided by the number of all workers, or else of those still there, and
        at the end everyone takes the model of the last one. Every exchange has one small all-reduce more. (Neither
        divisor makes samples count alike; `batch` does.)
        """
        if self._reducer is None or not enable:
            yield
            return
        now = self._now
        now.roll_call = RollCall(self._group, throw_on_early_termination)
        now.counts_present = not divide_by_initial_world_size
        try:
            yield
            while self._called(here=False):
                self._finish()
            if now.roll_call.last_present:
                for tensor in self.module.state_dict().values():
                    self._group.broadcast(tensor, now.roll_call.last_present[-1]).wait()
        finally:
            now.roll_call, now.counts_present, now.buffers_from = None, False, 0

    def _called(self, here: bool) -> float:
        """Answer the roll call: what a gradient counts for in the exchange that follows; 0 if nobody has one."""
        now = self._now
        assert now.roll_call is not None
        present = now.roll_call.answer(here)
        if not present:
            return 0.0
        now.buffers_from = present[-1]
        return 1 / len(present) if now.counts_present else now.weight

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Have `hook(state, bucket)` turn every bucket into the aggregate, as torch's wrapper does.

        The hook communicates by itself, usually over torch's process group, and divides by the number of workers.
        """
        if self._reducer is not None:
            self._reducer.use_hook(lambda bucket: hook(state, bucket))
            self._now.hook_divides = True

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether backward exchanges; what `no_sync` switches off, for programs that set it themselves."""
        return not self._now.in_no_sync

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, exchanges: bool) -> None:
        self._now.in_no_sync = not exchanges


def _check_threads(group: Group, params: dict[str, nn.Parameter]) -> None:
    if isinstance(group, ThreadGroup) and group.size > 1 and any(param.is_cuda for param in params.values()):
        raise ConfigError(
            "gradients are exchanged during backward, and all threads share the one thread in which torch runs "
            "backward on a GPU: each would wait for the other",
            "Start processes: shoal launch --launcher processes, or torchrun.",
        )


def _default_group(process_group: Any, params: dict[str, nn.Parameter]) -> Group:
    on_gpu = any(param.is_cuda for param in params.values())
    if process_group is not None or (dist.is_available() and dist.is_initialized()):
        return group_beside(process_group, "nccl" if on_gpu else "auto")
    import shoal  # the public door: a launcher may have prepared a seat for this thread

    return shoal.join(kind="nccl" if on_gpu else "auto")
