"""The weights of a server, and its optimizer's state, in memory in which every worker can update them."""

from collections.abc import Mapping
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import Mutex
from shoal.config.sections.server import ServerConfig
from shoal.optim.elementwise import Elementwise
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.guard import ROW
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.state import PlaceOf, load_optimizer
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.common_weights import CommonWeights
from shoal.strategies.server.mapped.bell import Bell
from shoal.strategies.server.mapped.journal import Journal
from shoal.strategies.update import MakeOptimizer, Update, Updated, bare_step


def updates_in_place(parts: SyncParts, config: ServerConfig, world: Group) -> bool:
    """Whether workers update the weights of the server themselves: the same answer on all ranks.

    They need one memory, one server, and an update for each push. A push that is encoded is decoded by a server; a
    worker that may be lost (`on_lost continue`) must not leave half an update behind.
    """
    return (
        world.maps_memory
        and config.num_servers == 1
        and not config.gathers
        and config.on_lost == "stop"
        and not isinstance(parts.exchange, Compressed)
        and parts.update.has_known_state
    )


@final
class MappedState:
    """Keeps the state of an optimizer of ours in memory that all members map. Making it is a collective.

    It starts at zero, and has the same addresses for all: one step of any member is a step of the one optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, world: Group) -> None:
        assert isinstance(optimizer, Elementwise)  # `updates_in_place`
        self._optimizer = optimizer
        self._mapped: dict[Tensor, dict[str, Tensor]] = {}
        for group in optimizer.param_groups:
            params: list[Tensor] = group["params"]
            for name in optimizer.state_names(group):
                for dtype in dict.fromkeys(param.dtype for param in params):
                    of_dtype = [param for param in params if param.dtype == dtype]
                    numels = [param.numel() for param in of_dtype]
                    memory = world.common(sum(numels), dtype)
                    for param, own in zip(of_dtype, memory.split(numels), strict=True):
                        self._mapped.setdefault(param, {})[name] = own.view(param.shape)
            if optimizer.counts_steps:
                # Through numpy, which makes it a tensor that is no view: the optimizer counts in it.
                counts = torch.from_numpy(world.common(len(params), torch.float32).numpy())
                for param, count in zip(params, counts.unbind(), strict=True):
                    self._mapped.setdefault(param, {})["step"] = count
        self._use_mapped()

    def _use_mapped(self) -> None:
        for param, own in self._mapped.items():
            self._optimizer.state[param] = dict(own)

    def step(self) -> None:
        """Step the optimizer."""
        bare_step(self._optimizer)()

    def settle(self) -> None:
        """Return at once: the state is in memory."""

    def load(self, params: Mapping[str, Tensor], place_of: PlaceOf, saved: Mapping[str, Tensor]) -> None:
        """Load a saved state, for all members."""
        load_optimizer(params, place_of, self._optimizer, saved)
        for param, own in self._mapped.items():
            loaded = self._optimizer.state.get(param, {})
            for name, tensor in own.items():
                tensor.copy_(loaded[name]) if name in loaded else tensor.zero_()
        self._use_mapped()


class MappedNumbers(NamedTuple):
    """What all ranks know about the updates."""

    journal: Journal
    rows: Tensor
    """What each worker last reported to the guard."""
    mutex: Mutex
    """Held by the one that changes weights and journal, or reads them."""
    bell: Bell
    """Wakes the server."""

    @classmethod
    def of(cls, world: Group, workers: int, bound: int | None) -> Self:
        """A collective of the world."""
        words = world.common(Journal.num_words(workers), torch.int64)
        rows = world.common(workers * ROW, torch.float64).view(workers, ROW)
        journal = Journal(words.numpy().data, workers, bound)  # its elements are ints, read in 40 ns
        return cls(journal, rows, Mutex(world, "the weights of the server"), Bell(world, owner=workers))


@final
class MappedShard:
    """All weights in memory that the server and its workers map, and this rank's optimizer over them.

    Memory of a machine: weights and optimizer state once, and a copy of the weights for each worker.
    """

    def __init__(self, layout: Updated, update: Update, world: Group) -> None:
        """A collective of the world."""
        self.weights = CommonWeights(layout, world)

        def keeper(
            optimizer: torch.optim.Optimizer, params: dict[str, Tensor], make: MakeOptimizer
        ) -> MappedState:
            del params, make
            return MappedState(optimizer, world)

        self.update = update.of(self.weights, keeper)
        world.barrier().wait()

    def pieces(self) -> list[Piece]:
        """The optimizer's state; the workers hold the weights."""
        return self.update.pieces()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load weights and optimizer state, for all ranks."""
        self.weights.load(saved)
        self.update.load(saved)
