"""`shoal data`: list, fetch, verify and divide data sets."""

import json
import sys

from shoal.cli import partition, text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.errors import DataError


def _list(given: Given) -> int:
    from shoal.data.files import inventory

    holdings = inventory(given["--data-dir"])
    if given["--json"]:
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


def _fetch(given: Given) -> int:
    from shoal.data.fetch import fetch

    progress = _Progress()
    try:
        brought = fetch(given.words[0], given["--from"], progress, directory=given["--data-dir"])
    finally:
        progress.end()
    for file in brought:
        text.show(f"{file.path}  ({file.source})")
    return 0


def _verify(given: Given) -> int:
    from shoal.data.files import verify

    name = given.words[0]
    states = verify(name, given["--data-dir"])
    for state in states:
        text.show(f"{'FAIL' if state.problem else 'OK  '} {state.problem or state.path}")
    if any(state.problem for state in states):
        raise DataError(f"{name} is not what was published", f"Get it again: shoal data fetch {name}")
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


_DATA_DIR = Flag("--data-dir", "Folder to look in first.", default="", value="DIR")

COMMAND = Command(
    "data",
    "List, fetch and verify data sets, or divide one among workers.",
    commands={
        "list": Command(
            "data list",
            "List the data sets and where they are.",
            _list,
            flags=(_DATA_DIR, Flag("--json", "Print the list as JSON.", bool, False)),
        ),
        "fetch": Command(
            "data fetch",
            "Download a data set, or copy it from files you have.",
            _fetch,
            words="NAME",
            flags=(Flag("--from", "Copy the files from this folder.", value="DIR"), _DATA_DIR),
        ),
        "verify": Command(
            "data verify",
            "Compare the checksum of every file with the published one.",
            _verify,
            words="NAME",
            flags=(_DATA_DIR,),
        ),
        "partition": partition.COMMAND,
    },
    details=lambda: (
        "Data sets are searched for in --data-dir, then in $SHOAL_DATA, then in the user's cache. `digits` comes with "
        "shoal and `synthetic` is made from a seed: neither is fetched.",
    ),
)
