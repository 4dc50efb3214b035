"""One worker's side of a wrapped module: which of its backward passes exchange gradients, and how."""

import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from shoal.comm.group import Group, Work
from shoal.errors import MismatchError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.buffer_sync import BufferSync
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.ddp.checks import EpochCheck, FiniteCheck, StaticGraph
from shoal.strategies.ddp.sparse_gradients import sparse_params, sum_sparse
from shoal.strategies.ddp.torch_options import Hook, send_by_hook
from shoal.strategies.ddp.uneven_inputs import Next, UnevenInputs
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.gradient_engine import torch_on_final
from shoal.strategies.library.backward_pass import BackwardPass, hook_tensors
from shoal.strategies.library.set_up import (
    SetUp,
    broadcast_state,
    ignored_names,
    shared_buffers,
    shared_params,
    shared_state,
    total_samples,
)
from shoal.strategies.replicas.sync_batchnorm import give_group


@final
class ModuleSync:
    """Keeps a wrapped module equal to those of the other workers, of which there is at least one.

    Phase 1, before forward: `share_buffers` copies one worker's buffers to all.
    Phase 2, forward: `watch` decides whether backward through the outputs exchanges, and puts hooks on them.
    Phase 3, backward: the first final gradient announces the exchange.
    Phase 4, the end of backward: gradients become equal on all workers.

    Constructing it is a collective. It refers to the module, not to the wrapper: when the wrapper is deleted, the hooks
    on parameters are removed.
    """

    def __init__(self, group: Group, module: nn.Module, exchange: Exchange, options: ReducerOptions) -> None:
        self.group = group
        self.weight = 1 / group.size
        """The factor of this worker's gradients: 1 / size, or its fraction of all samples."""
        self.is_weighted = False
        """Whether a weight is set: then all workers have copied buffers, and those without samples make no pass."""
        self.num_exchanges = 0
        self.uneven_inputs: UnevenInputs | None = None
        """Set where loops may end at different times."""
        self.find_uneven_inputs: Callable[[bool], UnevenInputs | None] | None = None
        """Called before every exchange, under torch's `Join`, to set `uneven_inputs`; whether a pass begins with it."""
        self._is_in_pass = False
        """Whether workers without inputs wait for the exchange of a pass whose buffers they have copied."""
        self._own_gradients: dict[nn.Parameter, Tensor | None] | None = None
        """The gradients that this worker had when it ran out of inputs."""
        self._module = module
        self._exchanges = False
        """Whether the next backward exchanges: the last forward pass decided so, and no exchange has followed."""
        self._hook_divides = False
        """Whether a communication hook divides by the number of workers."""
        self._backward = BackwardPass(self._backward_is_over, self._backward_has_failed)
        self._pass_weight = 0.0
        self._creates_graph = False
        """Whether the pass is a `backward(create_graph=True)`."""
        give_group(module, group, lambda: self.weight)
        self.has_buffers = bool(shared_buffers(module))
        self._buffers: BufferSync | None = None
        self._set_up = SetUp(module, "wrap model.module again", ignored_names(module))
        params = shared_params(module)
        self._sparse = sparse = sparse_params(module, params)
        self._finite_check = FiniteCheck(group)
        self._epoch_check = EpochCheck(group)
        self._exchange: Callable[[Bucket], Work] = partial(exchange, group)
        dense = {name: param for name, param in params.items() if name not in sparse}
        self._reducer = Reducer(
            group, dense, torch_on_final, self._send, options, begins=self._backward_begins
        )
        self._reducer.write_to_slots(module)
        hooks = [param.register_post_accumulate_grad_hook(self._sparse_gradient) for param in sparse.values()]
        self._removers = [self._reducer.remove, *(hook.remove for hook in hooks)]
        self._static_graph: StaticGraph | None = None
        if not options.once:
            self._static_graph = StaticGraph(group, params, lambda: self._reducer.is_exchanging)
            self._removers += self._static_graph.removers

    def remove(self) -> None:
        """Remove the hooks from the parameters."""
        self._reducer.linear.end()
        for remove in self._removers:
            remove()

    def use_hook(self, hook: Hook, state: object) -> None:
        """From now on, `hook(state, bucket)` makes the aggregate of every bucket, division included."""
        self._exchange = partial(send_by_hook, hook, state, shared_params(self._module))
        self._hook_divides = True

    def _send(self, bucket: Bucket) -> Work:
        self._finite_check.look(bucket)
        return self._exchange(bucket)

    @contextmanager
    def weighted(self, weight: float) -> Generator[None]:
        """Inside, this worker's gradients have this weight."""
        before, self.weight, self.is_weighted = self.weight, weight, True
        try:
            yield
        finally:
            self.weight, self.is_weighted = before, False

    def total_samples(self, here: int) -> float:
        """The samples of all workers in the step that begins; each says how many it has."""
        self._epoch_check.look()
        self._epoch_check.meet()
        with self._epoch_check.explained():
            return total_samples(self.group, here)

    # One pass, in this order.

    def share_buffers(self, exchanges: bool) -> None:
        """Before a forward pass, copy one worker's buffers to all; `exchanges`: whether backward is to exchange."""
        # Compiled graphs cannot contain it.
        share = _share_uncompiled if torch.compiler.is_compiling() else ModuleSync._share_buffers
        share(self, exchanges)

    def _share_buffers(self, exchanges: bool) -> None:
        self._agree(Next.BUFFERS_OF_EXCHANGE if exchanges else Next.BUFFERS)
        try:
            self._copy_buffers()
        except MismatchError as error:
            raise MismatchError(
                f"a forward pass began with a copy of rank 0's buffers, and not all workers made one; {error.message}",
                "Make the same passes on all workers; call model.module where only some workers evaluate.",
            ) from error

    def _copy_buffers(self) -> None:
        if self._buffers is None:
            self._buffers = BufferSync(self.group, lambda: shared_buffers(self._module))
        self._buffers.update((self.uneven_inputs and self.uneven_inputs.last_rank) or 0)

    def _agree(self, here: Next) -> None:
        """Where loops may end at different times, tell the workers that have ended what comes next."""
        if self.find_uneven_inputs is not None:
            self.uneven_inputs = self.find_uneven_inputs(not self._is_in_pass)
        self._is_in_pass = here is Next.BUFFERS_OF_EXCHANGE
        if self.uneven_inputs is not None:
            self._epoch_check.skip()
            self.uneven_inputs.agree(here)

    def forward_begins(self, exchanges: bool) -> None:
        """A forward pass that records gradients is about to run; whether backward is to exchange them."""
        self._backward.forget_failed()
        self._exchanges = exchanges
        if not torch.compiler.is_compiling():
            self._epoch_check.look()
            self._set_up.check()
            if exchanges:
                self._reducer.linear.begin()

    def watch(self, output: Any) -> None:
        """Make backward through this output exchange, unless the forward pass ran under `no_sync`."""
        # Compiled code has no hooks; there the first gradient announces the pass.
        if self._exchanges and not torch.compiler.is_compiling():
            hook_tensors(output, self._output_reached)

    def _output_reached(self, gradient: Tensor) -> None:
        """A second pass through the same outputs is exchanged, too."""
        del gradient
        self._exchanges = True
        self._backward.begin(outermost=True)

    def _sparse_gradient(self, param: Tensor) -> None:
        del param
        if not self._reducer.is_exchanging:
            self._backward_begins()

    def _backward_begins(self) -> None:
        """The first gradient of a pass is final: if this pass exchanges, buckets may be sent from now on."""
        if not self._exchanges:
            return
        self._creates_graph = torch.is_grad_enabled()
        self._agree(Next.GRADIENTS)
        weight = self.weight if self.uneven_inputs is None else self.uneven_inputs.weight(self.weight)
        self._epoch_check.meet()
        self._pass_weight = weight
        self._reducer.prepare(weight * self.group.size if self._hook_divides else weight)
        self._backward.begin()

    def _backward_is_over(self) -> None:
        if self._reducer.is_exchanging:
            self.finish()

    def _backward_has_failed(self) -> None:
        if self._static_graph is not None:
            self._static_graph.forget()
        if self._reducer.is_exchanging:
            self._reducer.abandon()
        self._reducer.linear.end()

    def finish(self) -> None:
        """Wait until gradients are equal on all workers; without a pass, take part with zeros."""
        with self._epoch_check.explained():
            if self._static_graph is not None:
                self._static_graph.check()
            with torch.set_grad_enabled(self._creates_graph):
                self._reducer.complete()
            sum_sparse(self.group, self._sparse, self._pass_weight, self._finite_check.look_at)
            self._reducer.wait()
        self.num_exchanges += 1
        self._exchanges, self._pass_weight, self._creates_graph = False, 0.0, False

    # Loops that end at different times.

    def take_part(self) -> bool:
        """Without inputs, take part in a pass of workers that have some; whether there was one."""
        while self.uneven_inputs is not None:
            theirs = self.uneven_inputs.agree(Next.ENDED)
            if theirs is Next.ENDED:
                break
            if theirs is Next.GRADIENTS:
                if self._own_gradients is None:
                    params = shared_params(self._module).values()
                    self._own_gradients = {p: None if p.grad is None else p.grad.clone() for p in params}
                self.finish()
                return True
            self._copy_buffers()
            if theirs is Next.BUFFERS:
                return True
        return False

    def take_last_model(self, buffers: bool) -> None:
        """Copy the model of the last worker that had inputs; gradients of the others do not stay for the next loop."""
        for param, own in (self._own_gradients or {}).items():
            param.grad = own
        self._own_gradients = None
        if self.uneven_inputs is not None and (root := self.uneven_inputs.last_rank) is not None:
            broadcast_state(self.group, shared_state(self._module, buffers), root)


_share_uncompiled = torch._disable_dynamo(ModuleSync._share_buffers)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]


@final
class TorchJoinHook(JoinHook):
    """For torch's `Join`: what a worker without inputs does. `at_end` is called when no worker has inputs."""

    def __init__(
        self, sync: ModuleSync, wrapper: Joinable, by_present: bool, at_end: Callable[[], None]
    ) -> None:
        self._sync, self._at_end = sync, at_end
        self._uneven_inputs = uneven_inputs = UnevenInputs(sync.group, by_present)
        me = weakref.ref(wrapper)

        def find_uneven_inputs(begins_pass: bool) -> UnevenInputs | None:
            wrapper = me()
            if wrapper is None or not wrapper._join_config.enable:  # pyright: ignore[reportPrivateUsage]
                return None
            if begins_pass:
                Join.notify_join_context(wrapper)
            return uneven_inputs

        sync.find_uneven_inputs = find_uneven_inputs

    def main_hook(self) -> None:
        """Take part in one more pass of the others."""
        self._sync.uneven_inputs = self._uneven_inputs
        self._sync.take_part()

    def post_hook(self, is_last_joiner: bool) -> None:
        """End: no worker has inputs."""
        del is_last_joiner
        self._at_end()
        self._sync.uneven_inputs, self._sync.find_uneven_inputs = None, None
