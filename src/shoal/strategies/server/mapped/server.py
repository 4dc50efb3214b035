"""The server whose workers update its weights themselves: records what they did, and saves."""

import json
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.group import ANYONE, Group
from shoal.config.sections.server import ServerConfig
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.mapped.journal import Entry
from shoal.strategies.server.mapped.shard import MappedNumbers, MappedShard
from shoal.strategies.server.server import ServingRank
from shoal.strategies.server.updates import Record
from shoal.strategies.server.wire import Request, decoded, empty_header, text_of_pause
from shoal.strategies.strategy import Pause, Serving

READ_EVERY_S = 0.05
"""How often it looks for entries: so rarely that it leaves the cores to the workers. They ring when they pause."""


@final
class MappedServer(ServingRank):
    """The server of workers with `MappedClient`s: it has the memory, and computes nothing.

    Until the workers pause it reads the entries that they write, and records them as the events of the run.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig, world: Group) -> None:
        super().__init__(parts, world)
        self._world = world
        sync_initial_state(world, parts.layout.pieces())
        self._shard = MappedShard(parts.layout, parts.update, world)
        self._has_paused = False
        self._journal, _, self._mutex, self._bell = MappedNumbers.of(world, self.data_size, config.bound)

    def serve(self, serving: Serving) -> Pause:
        """Record what the workers do, until they pause."""
        if self._has_paused:
            self._journal.end_pause()
        header = empty_header(Request)
        receipt = self._world.recv(header, ANYONE)
        while not receipt.done():
            self._look(serving.stop_signal, serving.record)
            self._bell.wait(READ_EVERY_S)
        receipt.wait()
        self._look(serving.stop_signal, serving.record)
        self._has_paused = True
        request = decoded(Request, header)  # these workers send no other message
        return Pause(**json.loads(text_of_pause(self._world, receipt.source, request)))

    def _look(self, stop_signal: Callable[[], int], record: Record) -> None:
        with self._mutex:
            self._journal.note_stop(stop_signal())
            entries = self._journal.entries()
        for entry in entries:
            record(_event(entry))

    def pieces(self) -> list[Piece]:
        """The optimizer's state, and the journal in the form of a ledger; the workers hold the weights."""
        return [*self._shard.pieces(), Piece.whole(self.ledger_name, torch.tensor(self._journal.state()))]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load weights and optimizer state; the journal, if it was saved with as many workers and servers."""
        self._shard.load(saved)
        if self.ledger_name in saved:
            self._journal.restore(saved[self.ledger_name].tolist())
        self._world.barrier().wait()


def _event(entry: Entry) -> dict[str, Any]:
    """The record of an update in the run's events: the one that a server writes that updates itself."""
    return {
        "event": "update",
        "rank": entry.rank,
        "sequence": entry.sequence,
        "step": entry.step,
        "from_version": entry.from_version,
        "version": entry.version,
        "staleness": entry.staleness,
        **({"share": entry.share} if entry.share >= 0 else {}),
        **({"skipped": True} if entry.is_skipped else {}),
    }
