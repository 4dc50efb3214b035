"""Copies of event files on other disks: rank 0's has all workers', and each disk has those of the disk before it.

New events travel with every checkpoint and at the end of the run. After an error, rank 0's folder has the others'
events up to the last checkpoint, which is where a resumed run goes on; their own folders have all.
"""

import json
from typing import final

from shoal.comm.agree import gather_texts
from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.events.file import EventFile
from shoal.events.folder import RunFolder
from shoal.training.disks.disks import Disks
from shoal.training.disks.transfer import Transfer, carry_out


@final
class EventCopies:
    """One worker's part in copying the event files of a run; with one disk it does nothing."""

    def __init__(self, folder: RunFolder, group: Group, disks: Disks) -> None:
        self._folder, self._group, self._disks = folder, group, disks
        self._sent = [0] * group.size
        """The bytes of each worker's file that this attempt has copied."""

    def restore(self) -> None:
        """Give each disk the longest version of its workers' files, before they are opened. A collective.

        A disk that was lost has none; one that was away for an attempt has a shorter one.
        """
        if self._disks.is_one:
            return
        mine = [self._size(rank) for rank in range(self._group.size)]
        keeps = self._disks.keeps(self._group.rank)
        sizes = [json.loads(text) for text in gather_texts(self._group, json.dumps(mine if keeps else []))]
        transfers: list[Transfer] = []
        for rank, home in enumerate(self._disks.keepers):
            longest = max(self._disks.ring, key=lambda keeper: sizes[keeper][rank])
            if sizes[longest][rank] > sizes[home][rank]:
                transfers.append(self._transfer(rank, longest, home, 0, sizes[longest][rank]))
        self._carry_out(transfers)

    def send(self, events: EventFile) -> None:
        """Copy what has been written since the last time, of this worker to `events`. A collective."""
        if self._disks.is_one:
            return
        events.flush()
        sizes = [int(text) for text in gather_texts(self._group, str(self._size(self._group.rank)))]
        transfers: list[Transfer] = []
        for rank, home in enumerate(self._disks.keepers):
            if sizes[rank] == self._sent[rank]:
                continue
            # The first time the whole file: there may be a copy that does not continue to what this attempt has.
            transfers += [
                self._transfer(rank, rank, keeper, self._sent[rank], sizes[rank])
                for keeper in sorted({self._disks.ring[0], self._disks.next_of(home)} - {home})
            ]
        self._carry_out(transfers)
        self._sent = sizes

    def _size(self, rank: int) -> int:
        path = self._folder.events(rank)
        return path.stat().st_size if path.exists() else 0

    def _transfer(self, rank: int, sender: int, keeper: int, begin: int, end: int) -> Transfer:
        path = self._folder.events(rank)
        return Transfer(sender, keeper, path, path, begin, end)

    def _carry_out(self, transfers: list[Transfer]) -> None:
        failure = ""
        try:
            carry_out(self._group, transfers)
        except OSError as error:
            failure = f"{self._disks.name_of(self._group.rank)} cannot copy events: {error}"
        if failures := [each for each in gather_texts(self._group, failure) if each]:
            raise ConfigError("; ".join(failures), "Is a disk full?")
