"""`shoal data`: list, fetch, verify and divide data sets."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from shoal.cli import partition, text
from shoal.cli.command import Command, CommandGroup, Given
from shoal.config.flags import Flags


@dataclass(frozen=True)
class DataFlags(Flags):
    """Where the files are."""

    data_dir: Path | None = None
    """Folder to look in first."""


@dataclass(frozen=True)
class ListFlags(DataFlags):
    """How the list is shown."""

    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class FetchFlags(DataFlags):
    """Where the files come from."""

    from_: Path | None = None
    """Copy the files from this folder instead of downloading them."""


def _list(given: Given[ListFlags]) -> int:
    """List the data sets and where they are."""
    from shoal.data.sources.files import inventory

    holdings = inventory(str(given.flags.data_dir or ""))
    if given.flags.json:
        rows = [
            {"name": held.name, "bytes": held.size, "folder": str(held.folder) if held.folder else None}
            for held in holdings
        ]
        text.show(json.dumps(rows))
        return 0
    for held in holdings:
        where = f"in {held.folder}" if held.folder else f"not on this machine: shoal data fetch {held.name}"
        text.show(f"{text.bold(f'{held.name:14}')} {held.sentence} ({held.size / 1e6:.0f} MB)")
        text.show(f"{'':14} {text.dim(where)}")
    text.show(
        f"{text.bold('synthetic     ')} made from a seed: classification, regression, text; of any size"
    )
    return 0


def _fetch(given: Given[FetchFlags]) -> int:
    """Download a data set, or copy it from files you have."""
    from shoal.data.sources.fetch import fetch

    flags, progress = given.flags, _Progress()
    try:
        brought = fetch(
            given.words[0], flags.from_ and str(flags.from_), progress, directory=str(flags.data_dir or "")
        )
    finally:
        progress.end()
    for file in brought:
        text.show(f"{file.path}  ({file.source})")
    return 0


def _verify(given: Given[DataFlags]) -> int:
    """Compare the checksum of every file with the published one."""
    from shoal.data.sources.files import check_verified, verify

    name, folder = given.words[0], str(given.flags.data_dir or "")
    states = verify(name, folder)
    for state in states:
        text.show(f"{'FAIL' if state.problem else 'OK  '} {state.problem or state.path}")
    check_verified(name, states, folder)
    return 0


class _Progress:
    """The progress of a fetch on one line of a terminal; nothing if there is no terminal."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, name: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{name}  {done / 1e6:.1f} / {total / 1e6:.1f} MB\033[K")
            sys.stderr.flush()
            self._shown = True

    def end(self) -> None:
        """Erase the line."""
        if self._shown:
            sys.stderr.write("\r\033[K")


COMMAND = CommandGroup(
    "data",
    "List, fetch and verify data sets, or divide one among workers.",
    {
        "list": Command("data list", _list, ListFlags),
        "fetch": Command("data fetch", _fetch, FetchFlags, "NAME"),
        "verify": Command("data verify", _verify, DataFlags, "NAME"),
        "partition": partition.COMMAND,
    },
    more="Data sets are searched for in --data-dir, then in $SHOAL_DATA, then in the user's cache. `digits` comes with "
    "shoal and `synthetic` is made from a seed: neither is fetched.",
)
