"""`shoal.DistributedDataParallel`: data parallelism for a training loop of your own, with torch's verbs."""

import copy
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Joinable, JoinHook

from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number, PositiveFloat, Seconds
from shoal.errors import ConfigError, WrapperError
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.buckets.reducer import ReducerOptions
from shoal.strategies.ddp.module_sync import ModuleSync, TorchJoinHook
from shoal.strategies.ddp.torch_options import Hook, check_hook, check_torch_options, moved_to
from shoal.strategies.ddp.uneven_inputs import UnevenInputs
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.exchange.user_exchange import as_exchange
from shoal.strategies.library.set_up import (
    all_of_torchs,
    check_threads,
    group_of,
    make_equal,
    shared_params,
    shared_state,
)


@final
class DistributedDataParallel(nn.Module, Joinable):
    """A replica of a model whose gradients, after `backward()`, are those of all workers together.

    ::

        model = shoal.DistributedDataParallel(model)
        for inputs, labels in loader:                           # this worker's samples
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()   # exchanged when this returns
            optimizer.step()                                    # the same update on every worker

    *What the gradients mean.* A wrapper knows neither how many samples a worker has nor what the loss divides by.
    So, like torch's wrapper, it averages over workers: `Σ gᵢ / size`. That is the gradient over all samples if each
    loss is a mean and all workers have the same number of samples; if not, samples of a small share count more.
    `batch(num_samples=n)` makes it exact: `Σ (nᵢ / Σn)·gᵢ`, where gᵢ is the gradient of the mean over nᵢ samples::

        with model.batch(num_samples=len(labels)):              # may be 0: then there is nothing to compute
            if len(labels):
                F.cross_entropy(model(inputs), labels).backward()

    Accumulate under `no_sync()`: gradients stay this worker's own until the first backward outside of it. Loops that
    end earlier on some workers run under `join()`.

    `group` is the workers. By default they are those of `torch.distributed` if the program has initialised it
    (`process_group` selects a part of them), else `shoal.join()`. Pass one group to all wrappers of a program.
    `exchange` aggregates the buckets, by default with an all-reduce; it may be a function of (group, flat tensor).
    `unused="zero"` allows parameters without a gradient; otherwise an error names them. `limit_s` is the limit for
    workers that are late or make no progress (default: SHOAL_TIMEOUT_S, or 1800 s, as in torch).

    A backward pass exchanges if it passes through this wrapper's outputs, or follows its forward pass; passes through
    `module` itself stay this worker's own. The pass after a failed one starts afresh.

    The keywords of torch's wrapper have torch's meaning: `device_ids` (one), `broadcast_buffers` and
    `forward_sync_buffers`, `init_sync`, `bucket_cap_mb`, `find_unused_parameters` (`unused="zero"`), `static_graph`
    (the same, and a parameter may get several gradients, as many in each pass as in the first);
    `gradient_as_bucket_view` and `check_reduction` have no effect. Other values are refused by name, and misuse for
    which torch's wrapper raises a RuntimeError is a `WrapperError`. `register_comm_hook` takes torch's hooks, torch's
    `Join` takes the wrapper, and `isinstance` counts it as torch's class, which checkpoint tools ask for. Sparse
    gradients stay sparse.

    Construction copies rank 0's parameters and buffers to all workers. As under torch's wrapper, a forward pass after
    an exchange begins with a copy of rank 0's buffers (running statistics), also for evaluation; after the pass each
    worker has its own. `batch` makes this copy when it is entered, and none inside. In a world of one there are no
    hooks and no exchange. A copy made with `deepcopy` has the same group, one loaded from a file the group of all
    workers; it connects to the others when it is first trained.

    Costs: one exchange for every 25 MiB of gradients, during backward where the group allows it; memory for a second
    copy of the gradients during backward; one broadcast before forward if the module has buffers.

    Not safe: workers with unequal numbers of exchanges; a forward pass of only some workers (to evaluate on one, call
    `model.module`); views of gradients (`param.grad.view(-1)`) after the next backward pass, which overwrites them.
    Unequal numbers of exchanges are an error: in loops that call `set_epoch` of a shoal sampler at the first one that
    other workers do not make, in other loops when a worker ends.

    >>> model = DistributedDataParallel(nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).mean().backward()
    >>> list(model.state_dict()), model.module.bias.grad
    (['module.weight', 'module.bias'], tensor([1.]))
    """

    @checks_arguments
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
        bucket_cap_mb: PositiveFloat | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        limit_s: Seconds | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        params = shared_params(module)
        if isinstance(group, Sequence):  # torch's second argument
            group, device_ids = None, group
        self._moves_to = check_torch_options(module, params, device_ids, output_device, others)
        self.module = module
        self.device_ids, self.output_device = device_ids, output_device
        self.find_unused_parameters = find_unused_parameters
        self.forward_sync_buffers = (
            broadcast_buffers is not False if forward_sync_buffers is None else forward_sync_buffers
        )
        """Whether forward passes begin with a copy of rank 0's buffers."""
        self._exchange = as_exchange(exchange)
        most_bytes = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        self._options = ReducerOptions(
            first_bytes=min(MIB, most_bytes),
            most_bytes=most_bytes,
            unused="zero" if find_unused_parameters or static_graph else unused,
            once=not static_graph,
        )
        self._has_hook = False
        self._is_of_all = group is None and process_group in (None, all_of_torchs())
        self.process_group = process_group or (all_of_torchs() if group is None else None)
        self._group = group_of(group, params, process_group, limit_s)
        check_threads(self._group, params)
        if self._group.size > 1 and init_sync:
            buffers = forward_sync_buffers is not None or broadcast_buffers is not False
            make_equal(self._group, shared_state(module, buffers))
        self._sync = self._new_sync(self._group)
        self.require_backward_grad_sync = True
        """Whether backward exchanges: what `no_sync` switches off, and what programs may set."""
        self.require_forward_param_sync = True
        """Whether the next forward pass begins with the copy: the last one was followed by an exchange."""

    def _new_sync(self, group: Group) -> ModuleSync | None:
        """The connection to the other workers; None if there are none."""
        if group.size == 1:
            return None
        sync = ModuleSync(group, self.module, self._exchange, self._options)
        # The module may outlive its wrapper, and then trains alone.
        weakref.finalize(self, sync.remove).atexit = False
        return sync

    def _connected(self) -> ModuleSync | None:
        """The connection to the other workers. A copy makes it when it first needs it; that is a collective."""
        if self._sync is None and (self._group is None or self._group.size > 1):
            if self._group is None and not self._is_of_all:
                raise WrapperError(
                    "the saved wrapper had a group of its own, which a loaded wrapper cannot find",
                    "Wrap its module again: DistributedDataParallel(model.module, group).",
                )
            if self._group is None:
                self._group = group_of(None, shared_params(self.module))
                self.process_group = all_of_torchs()
            self._sync = self._new_sync(self._group)
        return self._sync

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output."""
        records = torch.is_grad_enabled()
        sync = self._connected() if records else self._sync
        exchanges = records and self.require_backward_grad_sync
        if sync is not None:
            if self.will_sync_module_buffers():
                sync.share_buffers(exchanges)
            if records:
                sync.forward_begins(exchanges)
        if self._moves_to is not None:
            args, kwargs = moved_to(self._moves_to, args), moved_to(self._moves_to, kwargs)
        output = self.module(*args, **kwargs)
        if sync is not None:
            self.require_forward_param_sync = exchanges
            if records:
                sync.watch(output)
        return output

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Gradients of forward passes inside stay this worker's own, and accumulate."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    @checks_arguments
    def batch(self, num_samples: Number) -> Generator[None]:
        """Around one update's passes: the loss inside is a mean over `num_samples` samples of this worker.

        All workers enter it together, also without samples; it makes one small all-reduce. With accumulation,
        `num_samples` counts all parts together, and the sum of their losses is the mean over them.
        """
        sync = self._connected()
        if sync is None:
            yield
            return
        if sync.uneven_inputs is not None or self._join_config.enable:
            raise ConfigError(
                "batch() is not supported inside join(): workers that have ended would have to enter it, too",
                "Use one of them: batch(num_samples=0) lets a worker take part without samples, and is exact.",
            )
        if self.will_sync_module_buffers():  # here, where workers without samples take part
            sync.share_buffers(exchanges=True)
        of_all = sync.total_samples(num_samples)
        exchanges = sync.num_exchanges
        with sync.weighted(num_samples / of_all):
            yield
            if sync.num_exchanges == exchanges:
                if num_samples:
                    raise ConfigError(
                        f"batch(num_samples={num_samples}) ended without an exchange: the other workers wait for it",
                        "Call backward() inside it at least once, outside no_sync().",
                    )
                sync.finish()
        self.require_forward_param_sync = True

    @checks_arguments
    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Let `hook(state, bucket)` turn every bucket into the aggregate, as torch's wrapper does.

        The hook communicates on its own, usually over torch's process group, and divides by the number of workers.
        """
        check_hook(hook)
        if self._has_hook:
            raise WrapperError(
                "this wrapper has a communication hook, and takes only one",
                "Call both in a function of your own.",
            )
        self._has_hook = True
        if (sync := self._connected()) is not None:
            sync.use_hook(hook, state)

    # Loops that end at different times.

    @contextmanager
    @checks_arguments
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Generator[None]:
        """Around a loop that may end earlier on some workers: those that have ended take part with zeros.

        As with torch's wrapper, gradients are divided by the number of all workers or of those with inputs, and at the
        end all workers copy the model of the last one. Every exchange costs one more small all-reduce. (With neither
        divisor do all samples count equally; with `batch` they do.)
        """
        sync = self._connected()
        if sync is None or not enable:
            yield
            return
        by_present = not divide_by_initial_world_size
        sync.uneven_inputs = UnevenInputs(sync.group, by_present, throw_on_early_termination)
        try:
            yield
            while sync.take_part():
                pass
            self._take_last_model(sync)
        finally:
            sync.uneven_inputs = None

    def _take_last_model(self, sync: ModuleSync) -> None:
        sync.take_last_model(buffers=self.forward_sync_buffers)
        self.require_forward_param_sync = True

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """For torch's `Join`: what this worker does while only others have inputs.

        Its gradients are then the others' aggregates. So an optimizer in the same `Join` that updates a part of the
        parameters on each worker (`ZeroRedundancyOptimizer`) equals one that updates all of them. Under torch's wrapper
        a worker that has ended updates its part with its own last gradients, and the result is another one.
        """
        sync = self._connected()
        if sync is None:
            return JoinHook()

        def at_end() -> None:
            self._take_last_model(sync)
            Joinable.__init__(self)  # torch's context does not switch it off

        return TorchJoinHook(sync, self, not kwargs.get("divide_by_initial_world_size", True), at_end)

    @property
    def join_device(self) -> torch.device:
        """The device on which torch's `Join` counts workers."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The process group over which torch's `Join` counts workers."""
        if self.process_group is None:
            raise ConfigError(
                "torch's Join needs a process group of torch's, and this program has none",
                "Use `with model.join():` instead.",
            )
        return self.process_group

    # What programs expect of torch's wrapper.

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.module.parameters()).device

    @property
    def device_type(self) -> str:
        """The type of that device."""
        return self.device.type

    @property
    def static_graph(self) -> bool:
        """Whether a parameter may get several gradients in a pass, or none."""
        return not self._options.once

    @property
    def broadcast_buffers(self) -> bool:
        """`forward_sync_buffers`, under the name that older programs use."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def will_sync_module_buffers(self) -> bool:
        """Whether a forward pass now would begin with a copy of rank 0's buffers."""
        sync = self._sync
        is_due = self.forward_sync_buffers and self.require_forward_param_sync
        return is_due and sync is not None and sync.has_buffers and not sync.is_weighted

    def _set_static_graph(self) -> None:  # pyright: ignore[reportUnusedFunction]
        """What older programs call after construction, instead of `static_graph=True`."""
        if self.static_graph:
            warnings.warn("static_graph is True already", stacklevel=2)
            return
        sync = self._connected()
        if sync is not None and sync.num_exchanges:
            raise WrapperError(
                f"the graph was declared static after {sync.num_exchanges} steps",
                "Pass static_graph=True instead.",
            )
        self._options = replace(self._options, once=False, unused="zero")
        if sync is not None:
            sync.remove()
            self._sync = self._new_sync(sync.group)

    def _get_ddp_logging_data(self) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """What frameworks log about torch's wrapper."""
        rank, size = (0, 1) if self._group is None else (self._group.rank, self._group.size)
        name = type(self.module).__name__
        return {"module_name": name, "rank": rank, "world_size": size, "can_set_static_graph": False}

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: nn.Module, names: Sequence[str]) -> None:  # pyright: ignore[reportUnusedFunction]
        """Exclude these parameters and buffers of a module, before it is wrapped."""
        module._ddp_params_and_buffers_to_ignore = names  # pyright: ignore[reportArgumentType, reportPrivateUsage]

    # Copies: with the same group, or none if loaded from a file.

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the connection to other workers."""
        connection = ("_group", "process_group", "_sync")
        return {name: value for name, value in vars(self).items() if name not in connection}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A wrapper without a group: it joins the group of all workers when it is first trained."""
        super().__setstate__(state)
        self._group, self.process_group, self._sync = None, None, None
        self.require_backward_grad_sync = self.require_forward_param_sync = True

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with the same group. Not a collective: one worker alone may keep a copy for evaluation."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        twin._group, twin.process_group = self._group, self.process_group
        return twin


# Torch's checkpoints (DCP) strip the prefix `module.` from the names of torch's class.
nn.parallel.DistributedDataParallel.register(DistributedDataParallel)
