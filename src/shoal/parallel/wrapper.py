"""`shoal.DistributedDataParallel`: data parallelism for a training loop of your own, with torch's verbs."""

import copy
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join, Joinable

from shoal.comm.agree import check_same_model
from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.parallel.buckets.plan import MIB
from shoal.parallel.comm_hook import Hook
from shoal.parallel.default_group import all_of_torchs, check_threads, default_group
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.exchange.linear import AllReduce
from shoal.parallel.exchange.user_exchange import UserExchange
from shoal.parallel.member import Member, MemberOptions, make_alike, shared_params, shared_state
from shoal.parallel.roll_call import Ended, RollCall
from shoal.parallel.torch_options import check_torch_options, moved_to


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
        exchange: Exchange | Callable[[Group, Tensor], Any] | None = None,
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
        params = shared_params(module)
        if isinstance(group, Sequence):  # torch's second argument
            group, device_ids = None, group
        self._moves_to = check_torch_options(module, params, device_ids, output_device, others)
        if group is not None and not hasattr(group, "all_reduce"):
            raise ConfigError(f"the second argument is a group of workers, or device_ids, not {group!r}")
        self.module = module
        self.device_ids, self.output_device = device_ids, output_device
        self.find_unused_parameters = find_unused_parameters
        shares_buffers = forward_sync_buffers if forward_sync_buffers is not None else broadcast_buffers
        self._options = MemberOptions(
            _as_exchange(exchange),
            "zero" if find_unused_parameters or static_graph else unused,
            shares_buffers=shares_buffers is not False,
            static_graph=static_graph,
            most_bytes=int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB),
        )
        self._is_of_all = group is None and process_group in (None, all_of_torchs())
        self.process_group = process_group or (all_of_torchs() if group is None else None)
        self._group = group if group is not None else default_group(process_group, params)
        check_threads(self._group, params)
        if self._group.size > 1 and init_sync:
            state = shared_state(module, buffers=broadcast_buffers is not False)
            check_same_model(self._group, state)
            make_alike(self._group, state)
        self._member = self._new_member(self._group)

    def _new_member(self, group: Group) -> Member:
        member = Member(group, self.module, self._options)
        # A module outlives its wrapper, and then trains alone.
        weakref.finalize(self, member.remove).atexit = False
        return member

    def _connected(self) -> Member:
        """What exchanges with the others. A copy makes it when it is first needed; that is a collective."""
        if self._member is None:
            if self._group is None and not self._is_of_all:
                raise ConfigError(
                    "this wrapper was loaded, and the one that was saved had a group of its own",
                    "Wrap its module anew: DistributedDataParallel(model.module, group).",
                )
            if self._group is None:
                self._group = default_group(None, shared_params(self.module))
                self.process_group = all_of_torchs()
            self._member = self._new_member(self._group)
        return self._member

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output."""
        member = self._connected() if torch.is_grad_enabled() else None
        if member is not None:
            member.forward_begins()
        if self._moves_to is not None:
            args, kwargs = moved_to(self._moves_to, args), moved_to(self._moves_to, kwargs)
        output = self.module(*args, **kwargs)
        if member is not None:
            member.watch(output)
        return output

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Gradients of forward passes begun in here stay this worker's own, and are added up."""
        member = self._connected()
        before, member.in_no_sync = member.in_no_sync, True
        try:
            yield
        finally:
            member.in_no_sync = before

    @contextmanager
    def batch(self, num_samples: int) -> Generator[None]:
        """Around one update's passes: the loss in here is a mean over `num_samples` samples of this worker.

        All workers enter it together, those without samples too; it has one small all-reduce. With accumulation,
        `num_samples` counts all parts together, and the sum of their losses is the mean over them.
        """
        if num_samples < 0:
            raise ConfigError(f"num_samples must be 0 or more, not {num_samples}")
        member = self._connected()
        if member.is_alone:
            yield
            return
        if member.roll_call is not None or self._join_config.enable:
            raise ConfigError(
                "batch() cannot be inside join(): whoever has ended would have to enter it too",
                "Use one of them: under batch(num_samples=0) a worker gives nothing, and gradients are exact.",
            )
        total = torch.tensor([float(num_samples)], dtype=torch.float64)
        member.group.all_reduce(total).wait()
        everyones = total.item()
        if not everyones:
            raise ConfigError("no worker has a sample: batch(num_samples=0) on all of them")
        exchanges = member.num_exchanges
        with member.counting(num_samples / everyones):
            yield
            if member.num_exchanges == exchanges:
                if num_samples:
                    raise ConfigError(
                        f"batch(num_samples={num_samples}) ended without an exchange: the others wait for it",
                        "Inside, call backward() at least once, outside of no_sync().",
                    )
                member.finish()

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Have `hook(state, bucket)` turn every bucket into the aggregate, as torch's wrapper does.

        The hook communicates by itself, usually over torch's process group, and divides by the number of workers.
        """
        self._connected().use_hook(hook, state)

    # Loops that end at different times.

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
        member = self._connected()
        if member.is_alone or not enable:
            yield
            return
        by_present = not divide_by_initial_world_size
        member.roll_call = RollCall(member.group, by_present, throw_on_early_termination)
        try:
            yield
            while member.take_part():
                pass
            member.take_last_model()
        finally:
            member.roll_call = None

    def join_hook(self, **kwargs: Any) -> Ended:
        """For torch's `Join`: what this worker does once it has no inputs left, while others have."""
        member = self._connected()
        if member.is_alone:
            return Ended(lambda: None, lambda: None)
        roll_call = RollCall(member.group, by_present=not kwargs.get("divide_by_initial_world_size", True))
        me = weakref.ref(self)

        def called() -> RollCall | None:
            wrapper = me()
            if wrapper is None or not wrapper._join_config.enable:
                return None
            Join.notify_join_context(wrapper)
            return roll_call

        def once_more() -> None:
            member.roll_call = roll_call
            member.take_part()

        def at_end() -> None:
            member.take_last_model()
            member.roll_call, member.called = None, None
            Joinable.__init__(self)  # torch's context leaves it switched on

        member.called = called
        return Ended(once_more, at_end)

    @property
    def join_device(self) -> torch.device:
        """Where torch's `Join` counts who is still there."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """Over which torch's `Join` counts who is still there."""
        if self.process_group is None:
            raise ConfigError(
                "torch's Join counts workers over a process group of torch's, and this program has none",
                "Use `with model.join():` instead.",
            )
        return self.process_group

    # What programs ask torch's wrapper.

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether backward exchanges; what `no_sync` switches off, for programs that set it themselves."""
        return self._member is None or not self._member.in_no_sync

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, exchanges: bool) -> None:
        self._connected().in_no_sync = not exchanges

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
        return self._member is not None and self._member.takes_buffers

    def _set_static_graph(self) -> None:  # pyright: ignore[reportUnusedFunction]
        """What older programs call instead of `static_graph=True`, right after construction."""
        member = self._connected()
        member.remove()
        self._options = replace(self._options, static_graph=True, unused="zero")
        self._member = self._new_member(member.group)

    # Copies: with the same group, or none where they come from a file.

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what this worker shares with others."""
        return {name: value for name, value in vars(self).items() if name not in _SHARED_WITH_OTHERS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A wrapper without a group: it joins that of all workers when it is first trained."""
        super().__setstate__(state)
        self._group, self.process_group, self._member = None, None, None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with the same group. It is no collective: one worker alone may keep a copy to evaluate."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        twin._group, twin.process_group = self._group, self.process_group
        return twin


def _as_exchange(given: Exchange | Callable[[Group, Tensor], Any] | None) -> Exchange:
    """An exchange, or a function of (group, flat tensor), or the default."""
    if given is None or isinstance(given, Exchange):
        return given or AllReduce()
    return UserExchange(getattr(given, "__name__", type(given).__name__), given)


_SHARED_WITH_OTHERS = ("_group", "process_group", "_member")
