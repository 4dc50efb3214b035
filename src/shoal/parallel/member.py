"""One worker's side of a wrapped module: which of its backward passes exchange gradients, and what happens then."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.parallel.backward_pass import BackwardPass, tensors_in
from shoal.parallel.buckets.buffer_sync import BufferSync, buffers_of
from shoal.parallel.buckets.plan import MIB
from shoal.parallel.buckets.reducer import Reducer, ReducerOptions
from shoal.parallel.comm_hook import Hook, HookSender
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.roll_call import RollCall
from shoal.parallel.sync_batchnorm import give_group
from shoal.parallel.torch_options import ignored_names


@dataclass(frozen=True)
class MemberOptions:
    """How a wrapped module exchanges."""

    exchange: Exchange
    unused: Literal["refuse", "zero"]
    shares_buffers: bool
    static_graph: bool
    most_bytes: int


@final
class Member:
    """What a wrapper has among the other workers. Making it is a collective.

    Phase 1, forward: `watch` says whether a pass through the outputs is to exchange, and puts hooks on them.
    Phase 2, backward: the first gradient that is final announces the exchange.
    Phase 3, its end: gradients and buffers are everyone's.

    It knows the module, not the wrapper: when that one is dropped, the hooks on parameters go.
    """

    def __init__(self, group: Group, module: nn.Module, options: MemberOptions) -> None:
        self.group = group
        self.weight = 1 / group.size
        """What this worker's gradients count for: 1 / size, or its part of all samples."""
        self.in_no_sync = False
        self.num_exchanges = 0
        self.roll_call: RollCall | None = None
        """Where loops may end at different times."""
        self.called: Callable[[], RollCall | None] | None = None
        """Where another context than ours knows whether they may: asked before every exchange."""
        self._module = module
        self._exchanges = False
        """Whether backward exchanges: so the last forward pass has said, and no exchange has followed it."""
        self._hook_divides = False
        """Whether the division by the number of workers is left to a hook of the program's own."""
        self._backward = BackwardPass(self._backward_is_over, self._backward_has_failed)
        self._reducer: Reducer | None = None
        self._buffers: BufferSync | None = None
        if group.size == 1:
            return
        give_group(module, group, lambda: self.weight)
        if options.shares_buffers and (names := [*shared_buffers(module)]):
            self._buffers = BufferSync(group, buffers_of(module, names))
        self._reducer = Reducer(
            group,
            shared_params(module),
            lambda param, callback: param.register_post_accumulate_grad_hook(callback).remove,
            partial(options.exchange, group),
            ReducerOptions(
                first_bytes=min(MIB, options.most_bytes),
                most_bytes=options.most_bytes,
                unused=options.unused,
                once=not options.static_graph,
            ),
            begins=self._backward_begins,
        )

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to exchange with."""
        return self._reducer is None

    @property
    def takes_buffers(self) -> bool:
        """Whether buffers become one worker's with every exchange."""
        return self._buffers is not None

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        if self._reducer is not None:
            self._reducer.remove()

    def use_hook(self, hook: Hook, state: object) -> None:
        """From now on, `hook(state, bucket)` makes the aggregate of every bucket, division included."""
        if self._reducer is not None:
            self._reducer.send = HookSender(hook, state, shared_params(self._module)).send
            self._hook_divides = True

    @contextmanager
    def counting(self, weight: float) -> Generator[None]:
        """In here, this worker's gradients count for so much."""
        before, self.weight = self.weight, weight
        try:
            yield
        finally:
            self.weight = before

    # A pass, in this order.

    def forward_begins(self) -> None:
        """A forward pass that records gradients is about to run."""
        self._backward.forget_failed()
        self._exchanges = not self.in_no_sync

    def watch(self, output: Any) -> None:
        """See to it that backward through this output exchanges, if the forward pass was to."""
        # What is compiled has no place for hooks; there the first gradient says that backward has begun.
        if self._exchanges and self._reducer is not None and not torch.compiler.is_compiling():
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._output_reached)

    def _output_reached(self, gradient: Tensor) -> None:
        """Also a second pass through the same outputs is exchanged."""
        del gradient
        self._exchanges = True
        self._backward.begin(outermost=True)

    def _backward_begins(self) -> None:
        """The first gradient of a pass is final: from here on, if this pass exchanges, buckets may go."""
        if not self._exchanges or self._reducer is None:
            return
        if torch.is_grad_enabled():
            raise ConfigError(
                "backward(create_graph=True) cannot pass through an exchange of gradients",
                "Take second derivatives with torch.autograd.grad on model.module, or under no_sync().",
            )
        weight = self.weight
        if self.called is not None:
            self.roll_call = self.called()
        if self.roll_call is not None:
            weight = self.roll_call.weight(self.roll_call.answer(here=True), weight)
        self._reducer.prepare(weight * self.group.size if self._hook_divides else weight)
        self._backward.begin()

    def _backward_is_over(self) -> None:
        if self._reducer is not None and self._reducer.is_exchanging:
            self.finish()

    def _backward_has_failed(self) -> None:
        if self._reducer is not None and self._reducer.is_exchanging:
            self._reducer.abandon()

    def finish(self) -> None:
        """Wait until all gradients are everyone's; without a pass of one's own, take part with zeros."""
        if self._reducer is not None:
            self._reducer.complete()
            if self._buffers is not None:
                root = self.roll_call.last_present[-1] if self.roll_call is not None else 0
                self._buffers.update(root)
            self._reducer.wait()
            self.num_exchanges += 1
            self._exchanges = False

    # Where loops end at different times.

    def take_part(self) -> bool:
        """Without inputs left, in an exchange of those who have some; whether there were any."""
        if self.roll_call is None or not self.roll_call.answer(here=False):
            return False
        self.finish()
        return True

    def take_last_model(self) -> None:
        """Take the model of the last one who had inputs."""
        if self.roll_call is not None and self.roll_call.last_present:
            make_alike(self.group, shared_state(self._module), self.roll_call.last_present[-1])


def shared_params(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters whose gradients are exchanged."""
    ignored = ignored_names(module)
    named = module.named_parameters()
    return {name: param for name, param in named if param.requires_grad and name not in ignored}


def shared_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are to be the same on every worker."""
    ignored = ignored_names(module)
    return {name: buffer for name, buffer in module.named_buffers() if name not in ignored}


def shared_state(module: nn.Module, buffers: bool = True) -> dict[str, Tensor]:
    """All tensors that are to be the same on every worker, frozen ones too."""
    ignored = ignored_names(module)
    params = {name: param.detach() for name, param in module.named_parameters() if name not in ignored}
    return params | (shared_buffers(module) if buffers else {})


def make_alike(group: Group, state: dict[str, Tensor], root: int = 0) -> None:
    """Give everyone the root's tensors."""
    for tensor in state.values():
        group.broadcast(tensor, root).wait()
