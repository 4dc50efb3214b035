"""Updates without messages: workers on one machine update the weights of their server themselves (asp, ssp).

Weights, optimizer state and ledger are in memory that all ranks map. A worker takes the mutex in place of sending a
message, changes the weights, records its push in the ledger, and writes the update to a journal. The server reads the
journal and records the updates as events of the run. So an update costs a few stores and no message.

No message is lost or repeated here: a worker writes its own update, in the order of its program. Weights and ledger are
saved together, while no worker holds the mutex. A worker that is killed in the middle of an update leaves weights that
are half updated: the run stops (`on_lost stop`), and is resumed from its last checkpoint. `on_lost continue` therefore
uses messages.
"""

from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import Mutex, wait_until
from shoal.events.spans import MAPPED
from shoal.strategies.buckets.gradient_slots import ABSENT
from shoal.strategies.guard import ROW
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.ledger import Ledger, Push, VersionedUpdate, Words
from shoal.strategies.server.mapped_memory import Bell, MappedShard
from shoal.strategies.server.messages import HEADER_BYTES, Kind, Reply, Request, pause_servers
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.updates import compensate, damped

CAPACITY = 8192
"""Updates that the server may be behind: some seconds of the fastest workers."""


@final
class Journal:
    """A ring of updates that workers have made and the server has not recorded yet, in words that are zero at first.

    Methods that change it are for the rank that holds the mutex.
    """

    _WIDTH = len(Push._fields) + 3
    _WRITTEN, _RECORDED, _PAUSES_OVER, _COUNTERS = range(4)

    def __init__(self, words: Words, workers: int) -> None:
        self._words, self._workers = words, workers

    @classmethod
    def num_words(cls) -> int:
        """The words that it needs."""
        return cls._COUNTERS + CAPACITY * cls._WIDTH

    def has_room(self) -> bool:
        """Whether every worker can write one more update; if not, workers wait until the server has read some."""
        return self._words[self._WRITTEN] - self._words[self._RECORDED] <= CAPACITY - self._workers

    def write(self, update: VersionedUpdate, is_skipped: bool) -> None:
        """Write an update of one push."""
        words, (push,) = self._words, update.pushes
        at = self._COUNTERS + words[self._WRITTEN] % CAPACITY * self._WIDTH
        for value in (*push, update.version, update.share, int(is_skipped)):
            words[at] = value
            at += 1
        words[self._WRITTEN] += 1

    def read(self) -> list[tuple[VersionedUpdate, bool]]:
        """The updates that the server has not recorded yet, and whether each was skipped; it records them now."""
        words, found = self._words, list[tuple[VersionedUpdate, bool]]()
        for index in range(words[self._RECORDED], words[self._WRITTEN]):
            at = self._COUNTERS + index % CAPACITY * self._WIDTH
            *push, version, share, is_skipped = words[at : at + self._WIDTH]
            found.append((VersionedUpdate(version, (Push(*push),), share), bool(is_skipped)))
        words[self._RECORDED] += len(found)
        return found

    def end_pause(self) -> None:
        """The server has saved: the workers may go on."""
        self._words[self._PAUSES_OVER] += 1

    def is_over(self, pauses: int) -> bool:
        """Whether this many pauses are over. Before, a worker must not change the memory that the server saves."""
        return self._words[self._PAUSES_OVER] >= pauses


class MappedNumbers(NamedTuple):
    """The numbers about updates that all ranks share."""

    ledger: Ledger
    journal: Journal
    rows: Tensor
    """Each worker's last report to the guard."""
    mutex: Mutex
    """Held by the rank that changes weights, ledger and journal, or reads them."""
    bell: Bell
    """Wakes the server."""

    @classmethod
    def of(cls, world: Group, workers: int, config: ServerConfig) -> Self:
        """A collective of the world."""
        num_words = Ledger.num_words(workers)
        memory = world.common(num_words + Journal.num_words(), torch.int64)
        rows = world.common(workers * ROW, torch.float64).view(workers, ROW)
        words = memory.numpy().data  # its elements are ints, read in 40 ns
        ledger = Ledger(workers, config.bound, takes_turns=config.takes_turns, words=words[:num_words])
        journal = Journal(words[num_words:], workers)
        return cls(
            ledger, journal, rows, Mutex(world, "the weights of the server"), Bell(world, owner=workers)
        )


@final
class MappedClient:
    """Answers a worker's requests as a server would, with the weights and the ledger that all ranks map.

    Phase 1, ask the guard. Phase 2, with the mutex: update the weights with this worker's gradients, and record that.
    Phase 3, copy the weights: at once or, with a bound, when no worker is too far behind.

    Costs, with P bytes of parameters: the update of one machine, and P copied out (`CommonWeights`). The mutex is held
    for these two, a small part of a step.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        """A collective of the world: the server makes a `MappedServer`."""
        layout, workers = parts.layout, parts.group.size
        self._world, self._config, self._guard = world, config, parts.guard
        self._params, self._zero = list(layout.params.values()), layout.zero
        self._num_bytes = sum(param.nbytes for param in self._params)
        self.servers = range(workers, world.size)
        shard = MappedShard(layout, parts.update, world)
        self._weights, self._update = shard.weights, shard.update
        self._ledger, self._journal, rows, self._mutex, self._bell = MappedNumbers.of(world, workers, config)
        # As a numpy array: operations on a few numbers take a tenth of torch's time, in every step.
        self._rows = rows.numpy()
        self.replies: list[Reply] = []
        """The last reply."""
        self._sequence = self._version = self._pauses = 0

    def take_gradients(self) -> list[str]:
        """Push this worker's gradients with the next request; the names of parameters without one, where it has −0."""
        missing = self._weights.take_gradients()
        for name in missing:
            weights = self._weights.params[name]
            weights.grad = torch.full_like(weights, ABSENT)
        return missing

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the next push. A caller may change them in place."""
        return self._weights.gradients

    def ask(self, request: Request, gradients: bool = False) -> Reply:
        """Do the server's part of a request; the parameters are then its newest weights."""
        ledger, rank = self._ledger, self._world.rank
        self._world.beat()  # it may not communicate for a whole epoch
        if request.kind in (Kind.PULL, Kind.PUSH):
            self._sequence += 1
        may_update = gradients and self._may_update(request)
        if not self._is_open():
            wait_until(self._world, self._is_open, "the server")
        with self._mutex:
            if gradients:
                self._push(request, may_update)
            elif request.kind == Kind.PULL:
                ledger.pull(rank, self._sequence, request.step)
            ledger.release()
            if reads_at_once := ledger.is_released(rank):
                self._read(request)
        if not reads_at_once:
            wait_until(self._world, lambda: ledger.is_released(rank), "the slowest worker")
            with self._mutex:
                self._read(request)
        # As with messages: a request, a reply, the gradients and the weights.
        self._world.note_transfer(MAPPED, HEADER_BYTES + self._num_bytes * (1 + gradients))
        return self.replies[0]

    def _is_open(self) -> bool:
        """Whether the server has saved, and the journal has room."""
        return self._journal.is_over(self._pauses) and self._journal.has_room()

    def _may_update(self, request: Request) -> bool:
        """Ask the guard about this worker's gradient; it raises if a number that is not finite ends the run."""
        rank, row = self._world.rank, [request.loss, request.part, request.square, 0.0]
        rows = self._rows.tolist()
        rows[rank] = row
        may_update = self._guard.decide(rows, self._zero, is_alone=True).may_update
        # A bad push counts once.
        self._rows[rank] = row if may_update else 0.0
        return may_update

    def _push(self, request: Request, may_update: bool) -> None:
        """Update the weights, and record the push."""
        ledger, config = self._ledger, self._config
        if may_update:
            if config.compensation and request.part:
                # The parameters are still the weights that the gradient was computed with.
                strength = config.compensation / request.part
                compensate(self.gradients, [*self._weights.params.values()], self._params, strength)
            self._update.without_clipping(damped(request.lr, ledger.version - self._version, config))
        self._weights.drop_gradients()
        update = ledger.receive(Push(self._world.rank, self._sequence, self._version, request.step))
        assert update is not None  # nothing is gathered or repeated here
        if not may_update:
            ledger.skip()
        self._journal.write(update, is_skipped=not may_update)
        ledger.note_stop(request.stop_signal)

    def _read(self, request: Request) -> None:
        """Copy the weights, and take a turn if the worker asks for one."""
        ledger, rank = self._ledger, self._world.rank
        self._weights.read()
        self._version = ledger.version
        reply = Reply(self._sequence, self._version, **ledger.counts())
        if request.kind == Kind.HELLO:
            self._sequence, step = ledger.resume(rank)
            reply = reply._replace(sequence=self._sequence, step=step)
        elif request.end:
            turn = ledger.turns.take(rank, self._sequence, request.first, request.end)
            reply = reply.with_turn(turn or ledger.end_of_turns(request.first, request.end))
        elif request.kind == Kind.PUSH:
            reply = reply._replace(stop_signal=ledger.stop_signal_after(request.step + 1))
        self.replies = [reply]

    def pause(self, text: str) -> None:
        """End the serving of the server, and give it a text. All workers call it, when none asks any more."""
        self._pauses += 1
        pause_servers(self._world, self.servers, text)
        if self._world.rank == 0:
            self._bell.ring()
