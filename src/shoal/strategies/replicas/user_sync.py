"""A sync of one's own: its base, `ReplicaSync`, and building one from `package.module:function`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

from torch import Tensor

from shoal.comm.group import Group
from shoal.config.custom import calling, check_options, load, no_exit
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.strategies.pieces.piece import Piece, floats_of
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, StepResult, Strategy


class ReplicaSync(Sync):
    """Every worker holds a replica of the model, and trains it on its share of each batch.

        class SignVote(shoal.ReplicaSync):
            is_exact = False

            def combine(self, gradients, part):
                for gradient in gradients.values():
                    gradient.sign_()
                    self.group.all_reduce(gradient).wait()
                    gradient.sign_()

    Phase 1, gradients of this worker's share; each loss is divided by the *global* number of samples. Phase 2, the
    workers agree on the loss, on stop signals, and that all gradients are finite. Phase 3, `combine` changes the
    gradients. Phase 4, the update: clipping, learning rate, optimizer. Phase 5, `mix` changes the weights.

    By default it sums the gradients, which is what one machine computes. Options (`--strategy.KEY`) are arguments of
    the constructor, after `parts`. Both methods are called by all workers together. Not safe: a method that some
    workers skip, or in which they make different calls of the group.
    """

    is_exact: ClassVar[bool] = True
    """Whether it computes what one machine computes: `shoal check strategy` then requires that."""
    replicas_differ: ClassVar[bool] = False
    """Whether workers hold different weights between steps. They are averaged to evaluate, save and export, and each
    worker continues with its own."""

    def __init__(self, parts: SyncParts) -> None:
        super().__init__(parts)
        self._own_weights: dict[str, Tensor] | None = None
        """This worker's weights, while the model has the average of all workers'."""
        sync_initial_state(parts.group, super().pieces())

    @property
    def group(self) -> Group:
        """The workers."""
        return self._group

    def combine(self, gradients: Mapping[str, Tensor], part: float) -> None:
        """Change the gradients in place, by the name of their parameter; the default sums them over the workers.

        `part` is this worker's fraction of the samples of the step: divided by it, gradients are the mean over its own.
        """
        del part
        for gradient in gradients.values():
            self._group.all_reduce(gradient).wait()

    def mix(self, weights: Mapping[str, Tensor]) -> None:
        """Change the weights in place, after the update; the default does nothing."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        if self._own_weights is not None:
            for name, tensor in self._floats().items():
                tensor.copy_(self._own_weights[name])
            self._own_weights = None
        layout = self._layout
        loss = layout.gradients(share)
        with layout.span("exchange", "move"):
            gradients = {name: grad.contiguous() for name, grad in self._present_gradients().items()}
            for name, gradient in gradients.items():
                layout.params[name].grad = gradient
            self._guard.look(*gradients.values())
            verdict = self._guard.agree(loss, share)
            if verdict.may_update:
                self.combine(gradients, share.num_samples / share.num_samples_global)
        if verdict.may_update:
            self._update(lr, scale=verdict.scale)
            with layout.span("exchange", "move"):
                self.mix({name: param.detach() for name, param in layout.params.items()})
        return StepResult(verdict.loss, verdict.stop_signal)

    def consolidate(self) -> None:
        """Average the weights and buffers of replicas that differ; the next step returns to this worker's own."""
        if not self.replicas_differ or self._own_weights is not None:
            return
        self._own_weights = {}
        for name, tensor in self._floats().items():
            self._own_weights[name] = tensor.clone()
            self._group.all_reduce(tensor).wait()
            tensor /= self._group.size

    def pieces(self) -> list[Piece]:
        """One machine's state; of replicas that differ also each worker's own weights and moments."""
        pieces = super().pieces()
        if not self.replicas_differ:
            return pieces
        own = self._floats() if self._own_weights is None else self._own_weights
        moments = {piece.name: piece.tensor for piece in self._update.pieces()}
        return [*pieces, *(Piece.whole(self._own_name(name), each) for name, each in (own | moments).items())]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load one machine's state; of replicas that differ, then this worker's own, if as many workers saved."""
        super().load(saved)
        self._own_weights = None
        prefix = self._own_name("")
        mine = {name.removeprefix(prefix): name for name in saved if name.startswith(prefix)}
        if self.replicas_differ and mine:
            self._update.load({name: saved[key] for name, key in mine.items()})
            own = {name: tensor.clone() for name, tensor in self._floats().items()}
            for name, tensor in own.items():
                tensor.copy_(saved[mine[name]])
            self._own_weights = own

    def _floats(self) -> dict[str, Tensor]:
        """Weights and statistics; counts are the same on all workers."""
        return floats_of(self._layout.pieces())

    def _own_name(self, name: str) -> str:
        return f"replica.rank{self._group.rank}of{self._group.size}.{name}"


def build_user_sync(parts: SyncParts, config: Custom) -> Strategy:
    """Construct the strategy; usually the path names a class that derives from `ReplicaSync`.

    Whatever is wrong with the path, the options or what it returns is an error here.
    """
    with calling("strategy", config):
        function = load("strategy", config)
        check_options("strategy", config, function, given=1)
    # Workers communicate in it, so no thread may hold the lock of imports.
    with no_exit(f"strategy {config.name}"):
        try:
            made = function(parts, **dict(config.options))
        except ShoalError:
            raise
        except Exception as error:  # any exception: this runs the user's code
            raise ConfigError(
                f"strategy {config.name} raised {type(error).__name__} when it was constructed: {error}"
            ) from error
    if not isinstance(made, Strategy):
        raise ConfigError(
            f"strategy {config.name} returned a value of type {type(made).__name__}",
            "Name a class that derives from shoal.ReplicaSync, or a function that returns an object of one.",
        )
    if parts.guard.count_of_share is not None and type(made).step is not ReplicaSync.step:
        raise ConfigError(
            f"strategy {config.name} has a step of its own, which does not support a loss with a count",
            "Derive it from shoal.ReplicaSync without `step`, or return the sum over the samples alone from the loss.",
        )
    return made


def make_user_sync(config: object) -> Callable[[SyncParts], Strategy]:
    """How to build the strategy of a user's path; a ConfigError for a built-in one."""
    return partial(build_user_sync, config=_custom(config))


def is_exact(config: object) -> bool:
    """Whether the strategy claims to equal one machine; True if it declares nothing."""
    custom = _custom(config)
    with calling("strategy", custom):
        return bool(getattr(load("strategy", custom), "is_exact", True))


def _custom(config: object) -> Custom:
    if not isinstance(config, Custom):
        name = getattr(config, "name", config)
        raise ConfigError(
            f"{name} is built into shoal; `shoal check strategy` checks strategies of your own",
            "Name one of yours: package.module:Class.",
        )
    return config
