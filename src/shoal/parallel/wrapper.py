"""`shoal.DistributedDataParallel`: data parallelism for a training loop of your own, with torch's verbs."""

import copy
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join, Joinable

from shoal.comm.agree import check_same_model
from shoal.comm.from_torch import group_beside
from shoal.comm.group import Group
from shoal.comm.threads import ThreadGroup
from shoal.errors import ConfigError
from shoal.parallel.backward_pass import BackwardPass, tensors_in
from shoal.parallel.buckets import MIB
from shoal.parallel.comm_hook import Hook
from shoal.parallel.copies import Copies
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.exchange.linear import AllReduce
from shoal.parallel.reducer import Reducer
from shoal.parallel.roll_call import Ended, RollCall
from shoal.parallel.sync_batchnorm import give_group
from shoal.parallel.torch_options import check_torch_options, ignored_names, moved_to


@dataclass
class _Now:
    """Where a wrapper stands. Not attributes of the module itself: those take torch many times as long to set."""

    connected: bool = False
    weight: float = 1.0
    """What this worker's gradients count for: 1 / size, or its part of all samples."""
    exchanges: bool = False
    """Whether backward exchanges: so the last forward pass has said, and no exchange has followed it."""
    in_no_sync: bool = False
    num_exchanges: int = 0
    hook_divides: bool = False
    """Whether the division by the number of workers is left to a hook of the program's own."""
    in_join: bool = False
    roll_call: RollCall | None = None
    """Inside `join`, ours or torch's."""
    counts_present: bool = False
    """Inside `join`: whether gradients are divided by the number of those who still have inputs."""
    buffers_from: int = 0
    """Whose buffers everyone takes."""


@dataclass(frozen=True)
class _Options:
    """What a wrapper was told."""

    exchange: Exchange
    unused: Literal["refuse", "zero"]
    shares_buffers: bool
    static_graph: bool
    most_bytes: int
    of_everyone: bool
    """Whether its group is that of all workers of the program."""


@final
class DistributedDataParallel(nn.Module, Joinable):
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

    A backward pass exchanges if it passes through what this wrapper gave, or follows its forward pass; passes through
    `module` itself are this worker's own. One that fails is forgotten with the next.

    The keywords of torch's wrapper are taken with torch's meaning: `device_ids` (one), `broadcast_buffers` and
    `forward_sync_buffers`, `init_sync`, `bucket_cap_mb`, `find_unused_parameters` (`unused="zero"`), `static_graph`
    (this too, and gradients may come several times in a pass); `gradient_as_bucket_view` and `check_reduction` change
    nothing here. What cannot be honoured is refused by name. `register_comm_hook` takes torch's hooks, and torch's
    `Join` takes the wrapper.

    Construction gives every worker rank 0's parameters and buffers; buffers (running statistics) become rank 0's again
    with every exchange. In a world of one no hook is installed and nothing is shared. Copies made with `deepcopy` have
    the same group, those loaded from a file that of all workers; they meet the others when they are first trained.

    Costs: one exchange for every 25 MiB of gradients, starting while backward is still at work; memory for the
    gradients once more while backward hands them over.

    Not safe: workers that exchange differently often; `backward(create_graph=True)`; a forward pass of which only some
    workers make use; views of gradients (`param.grad.view(-1)`) kept beyond the next backward pass, which writes where
    they lie.

    >>> model = DistributedDataParallel(nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).mean().backward()
    >>> list(model.state_dict()), model.module.bias.grad
    (['module.weight', 'module.bias'], tensor([1.]))
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group | Sequence[int | torch.device | str] | None = None,
        output_device: int | torch.device | str | None = None,
        *,
        exchange: Exchange | None = None,
        unused: Literal["refuse", "zero"] = "refuse",
        device_ids: Sequence[int | torch.device | str] | None = None,
        process_group: Any = None,
        broadcast_buffers: bool | None = None,
        forward_sync_buffers: bool | None = None,
        init_sync: bool = True,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        **others: Any,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        params = _taking_gradients(module)
        if isinstance(group, Sequence):  # torch's second argument
            group, device_ids = None, group
        self._moves_to = check_torch_options(module, params, device_ids, output_device, others)
        if group is not None and not hasattr(group, "all_reduce"):
            raise ConfigError(f"the second argument is a group of workers, or device_ids, not {group!r}")
        self.module = module
        self._options = _Options(
            exchange or AllReduce(),
            "zero" if find_unused_parameters or static_graph else unused,
            shares_buffers=next(
                (one for one in (forward_sync_buffers, broadcast_buffers) if one is not None), True
            ),
            static_graph=static_graph,
            most_bytes=int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB),
            of_everyone=group is None and process_group in (None, _everyone()),
        )
        self.device_ids, self.output_device = device_ids, output_device
        self.find_unused_parameters = find_unused_parameters
        self._group = group if group is not None else _default_group(process_group, params)
        self.process_group = process_group or (_everyone() if group is None else None)
        _check_threads(self._group, params)
        self._disconnected()
        if self._group.size > 1 and init_sync:
            state = self._state(buffers=broadcast_buffers is not False)
            check_same_model(self._group, state)
            for tensor in state.values():
                self._group.broadcast(tensor).wait()
        self._connect()

    def _disconnected(self) -> None:
        """Neither reducer nor shared buffers: a wrapper that is alone, and a copy that has not yet been used."""
        self._now = _Now()
        self._reducer: Reducer | None = None
        self._shared_buffers: Copies | None = None
        # A hook on an output outlives the output: it must not keep the wrapper.
        me = weakref.ref(self)
        self._backward = BackwardPass(
            lambda: _and(me(), DistributedDataParallel._backward_is_over),
            lambda: _and(me(), DistributedDataParallel._backward_has_failed),
        )

    def _connect(self) -> None:
        """Make what exchanges gradients and buffers; a collective."""
        now, options, module = self._now, self._options, self.module
        params = _taking_gradients(module)
        if self._group is None:
            if not options.of_everyone:
                raise ConfigError(
                    "this wrapper was loaded, and the one that was saved had a group of its own",
                    "Wrap its module anew: DistributedDataParallel(model.module, group).",
                )
            self._group = _default_group(None, params)
            self.process_group = _everyone()
        now.connected = True
        now.weight = 1 / self._group.size
        if self._group.size == 1:
            return
        give_group(module, self._group, lambda: now.weight)
        buffers = self._everyones_buffers()
        if options.shares_buffers and buffers:
            self._shared_buffers = Copies(self._group, buffers)
        me = weakref.ref(self)
        self._reducer = Reducer(
            self._group,
            options.exchange,
            params,
            lambda param, callback: param.register_post_accumulate_grad_hook(callback).remove,
            first_bytes=min(MIB, options.most_bytes),
            most_bytes=options.most_bytes,
            unused=options.unused,
            once=not options.static_graph,
            begins=lambda: _and(me(), DistributedDataParallel._backward_begins),
        )
        # A module outlives its wrapper, and then trains alone.
        weakref.finalize(self, self._reducer.remove).atexit = False

    def _everyones_buffers(self) -> list[Tensor]:
        ignored = ignored_names(self.module)
        return [buffer for name, buffer in self.module.named_buffers() if name not in ignored]

    def _state(self, buffers: bool = True) -> dict[str, Tensor]:
        """The tensors that are to be the same on every worker."""
        module, ignored = self.module, ignored_names(self.module)
        named = [*module.named_parameters(), *(module.named_buffers() if buffers else ())]
        return {name: tensor.detach() for name, tensor in named if name not in ignored}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output."""
        now = self._now
        watches = False
        if torch.is_grad_enabled():
            if not now.connected:
                self._connect()
            self._backward.forget_failed()
            now.exchanges = not now.in_no_sync
            watches = now.exchanges and self._reducer is not None and not torch.compiler.is_compiling()
        if self._moves_to is not None:
            args, kwargs = moved_to(self._moves_to, args), moved_to(self._moves_to, kwargs)
        output = self.module(*args, **kwargs)
        if watches:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._output_reached)
        return output

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
        if self._reducer is None or self._group is None:
            yield
            return
        if self._now.in_join:
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

    # What happens in a backward pass, in this order.

    def _output_reached(self, gradient: Tensor) -> None:
        """A pass through outputs of a forward pass that was to be exchanged, also if it is not the first one."""
        del gradient
        self._now.exchanges = True
        self._backward.begin(outermost=True)

    def _backward_begins(self) -> None:
        """The first gradient of a pass is final: from here on, if this pass exchanges, buckets may go."""
        if not self._now.exchanges or self._reducer is None or self._group is None:
            return
        if torch.is_grad_enabled():
            raise ConfigError(
                "backward(create_graph=True) cannot pass through an exchange of gradients",
                "Take second derivatives with torch.autograd.grad on model.module, or under no_sync().",
            )
        weight = self._now.weight
        if self._join_config.enable:
            Join.notify_join_context(self)
        if self._now.in_join or self._join_config.enable:
            weight = self._called(here=True)
        self._reducer.prepare(weight * self._group.size if self._now.hook_divides else weight)
        self._backward.begin()

    def _backward_is_over(self) -> None:
        if self._reducer is not None and self._reducer.is_exchanging:
            self._finish()

    def _backward_has_failed(self) -> None:
        if self._reducer is not None and self._reducer.is_exchanging:
            self._reducer.abandon()

    def _finish(self) -> None:
        """Wait until all gradients are everyone's."""
        if self._reducer is not None:
            self._reducer.complete()
            if self._shared_buffers is not None:
                self._shared_buffers.update(self._now.buffers_from, self._everyones_buffers())
            self._reducer.wait()
            self._now.num_exchanges += 1
            self._now.exchanges = False

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
        self._start_roll_call(divide_by_initial_world_size, throw_on_early_termination)
        self._now.in_join = True
        try:
            yield
            while self._take_part():
                pass
            self._take_last_model()
        finally:
            self._join_is_over()

    def _start_roll_call(self, divides_by_all: bool, all_or_none: bool) -> None:
        if self._group is not None:
            self._now.roll_call = RollCall(self._group, all_or_none)
            self._now.counts_present = not divides_by_all

    def _take_part(self) -> bool:
        """Without inputs of one's own, in an exchange of those who have some; whether there were any."""
        if not self._called(here=False):
            return False
        self._finish()
        return True

    def _take_last_model(self) -> None:
        """Everyone takes the model of the last one who had inputs."""
        roll_call = self._now.roll_call
        if self._group is not None and roll_call is not None and roll_call.last_present:
            for tensor in self._state().values():
                self._group.broadcast(tensor, roll_call.last_present[-1]).wait()

    def _join_is_over(self) -> None:
        now = self._now
        now.in_join, now.roll_call, now.buffers_from = False, None, 0
        Joinable.__init__(self)  # torch's context leaves it switched on

    def _called(self, here: bool) -> float:
        """Answer the roll call: what a gradient counts for in the exchange that follows; 0 if nobody has one."""
        now = self._now
        assert now.roll_call is not None
        present = now.roll_call.answer(here)
        if not present:
            return 0.0
        now.buffers_from = present[-1]
        return 1 / len(present) if now.counts_present else now.weight

    # What torch's `Join` asks of whatever takes part in it.

    def join_hook(self, **kwargs: Any) -> Ended:
        """What this worker does once it has no inputs left, while others have."""
        if self._reducer is None:
            return Ended(lambda: None, lambda: None)
        self._start_roll_call(kwargs.get("divide_by_initial_world_size", True), all_or_none=False)

        def at_end() -> None:
            self._take_last_model()
            self._join_is_over()

        return Ended(self._take_part, at_end)

    @property
    def join_device(self) -> torch.device:
        """Where torch counts who is still there."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """Over which torch counts who is still there."""
        if self.process_group is None:
            raise ConfigError(
                "torch's Join counts workers over a process group of torch's, and this program has none",
                "Use `with model.join():` instead.",
            )
        return self.process_group

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

    # What programs ask torch's wrapper.

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.module.parameters()).device

    @property
    def device_type(self) -> str:
        """The kind of device the parameters are on."""
        return self.device.type

    @property
    def static_graph(self) -> bool:
        """Whether gradients may come several times in a pass, or never."""
        return self._options.static_graph

    @property
    def broadcast_buffers(self) -> bool:
        """Whether everyone takes rank 0's buffers with every exchange."""
        return self._options.shares_buffers

    def will_sync_module_buffers(self) -> bool:
        """Whether there are buffers to be taken, too."""
        return self._shared_buffers is not None

    def _set_static_graph(self) -> None:  # pyright: ignore[reportUnusedFunction]
        """What older programs call instead of `static_graph=True`, before training."""
        if self._reducer is not None:
            self._reducer.remove()
        self._options = replace(self._options, static_graph=True, unused="zero")
        self._connect()

    # Copies: with the same group, or none where they come from a file. They connect when they are first trained.

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what this worker shares with others."""
        return {name: value for name, value in vars(self).items() if name not in _SHARED_WITH_OTHERS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A wrapper without a group: it joins everyone's at its first forward pass that records gradients."""
        super().__setstate__(state)
        self._group = None
        self.process_group = None
        self._disconnected()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with the same group. It is no collective: one worker alone may keep a copy to evaluate."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        twin._group, twin.process_group = self._group, self.process_group
        return twin


_SHARED_WITH_OTHERS = ("_group", "process_group", "_reducer", "_shared_buffers", "_now", "_backward")


def _and(wrapper: DistributedDataParallel | None, do: Callable[[DistributedDataParallel], None]) -> None:
    if wrapper is not None:
        do(wrapper)


def _taking_gradients(module: nn.Module) -> dict[str, nn.Parameter]:
    ignored = ignored_names(module)
    return {
        name: param
        for name, param in module.named_parameters()
        if param.requires_grad and name not in ignored
    }


def _everyone() -> Any:
    """Torch's group of all processes, if the program has one."""
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


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
