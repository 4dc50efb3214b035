"""`shoal data`: which data sets there are, where they lie, and whether they are what was published."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.cli import data_partition, text
from shoal.cli.options import Options, no_more, split_options
from shoal.errors import ConfigError, unknown

HELP = """Usage: shoal data list      [--data-dir DIR] [--json]
       shoal data fetch     NAME [--from DIR] [--data-dir DIR]
       shoal data verify    NAME [--data-dir DIR]
       shoal data partition NAME [--workers N] [--by RULE] …

  list       what there is, and where it lies
  fetch      get it: from a mirror, or from files you have (--from)
  verify     compare every file with what was published
  partition  divide it among workers, and see who owns what; `shoal data partition --help` says more

Data sets are looked for in --data-dir, else in $SHOAL_DATA, else in the user's cache. `digits` comes with shoal, and
`synthetic` is made from a seed; neither needs fetching."""


def run(argv: Sequence[str]) -> int:
    """Find the verb and do it."""
    options, words = split_options(
        argv,
        switches=("--help", "-h", *_flags(lambda verb: verb.switches)),
        values=_flags(lambda verb: verb.values),
    )
    name, *rest = words or [""]
    if not name or (options.has("--help", "-h") and name != "partition"):
        text.page(HELP)
        return 0
    if name not in VERBS:
        raise ConfigError(unknown("verb", name, VERBS), "`shoal data --help` says what each does.")
    if options.has("--help", "-h"):
        text.page(data_partition.help_text())
        return 0
    verb = VERBS[name]
    for flag in options.values:
        if flag not in (*verb.switches, *verb.values):
            owners = [other for other, known in VERBS.items() if flag in (*known.switches, *known.values)]
            raise ConfigError(
                f"shoal data {name} has no {flag}: it belongs to {', '.join(owners)}",
                "`shoal data --help` says what each takes.",
            )
    return verb.do(options, rest)


def _list(options: Options, words: list[str]) -> int:
    from shoal.data.sources.files import inventory

    no_more(words, "shoal data list [--data-dir DIR] [--json]")
    holdings = inventory(options.value("--data-dir") or "")
    if options.has("--json"):
        rows = [
            {"name": held.name, "bytes": held.size, "folder": str(held.folder) if held.folder else None}
            for held in holdings
        ]
        text.show(json.dumps(rows))
        return 0
    for held in holdings:
        where = f"in {held.folder}" if held.folder else f"not here: shoal data fetch {held.name}"
        text.show(f"{text.bold(f'{held.name:14}')} {held.sentence} ({held.size / 1e6:.0f} MB)")
        text.show(f"{'':14} {text.dim(where)}")
    text.show(
        f"{text.bold('synthetic     ')} made from a seed: classification, regression, text; of any size"
    )
    return 0


def _fetch(options: Options, words: list[str]) -> int:
    from shoal.data.sources.fetch import fetch

    name = _name(words, "shoal data fetch NAME [--from DIR] [--data-dir DIR]")
    progress = _Progress()
    try:
        brought = fetch(name, options.value("--from"), progress, directory=options.value("--data-dir") or "")
    finally:
        progress.end()
    for file in brought:
        text.show(f"{file.path}  ({file.source})")
    return 0


def _verify(options: Options, words: list[str]) -> int:
    from shoal.data.sources.files import check_verified, verify

    name = _name(words, "shoal data verify NAME [--data-dir DIR]")
    states = verify(name, options.value("--data-dir") or "")
    for state in states:
        text.show(f"{'FAIL' if state.problem else 'OK  '} {state.problem or state.path}")
    check_verified(name, states, options.value("--data-dir") or "")
    return 0


class Verb(NamedTuple):
    """What can be done with data, and the options that belong to it."""

    do: Callable[[Options, list[str]], int]
    switches: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


VERBS = {
    "list": Verb(_list, switches=("--json",), values=("--data-dir",)),
    "fetch": Verb(_fetch, values=("--data-dir", "--from")),
    "verify": Verb(_verify, values=("--data-dir",)),
    "partition": Verb(data_partition.partition, data_partition.SWITCHES, data_partition.VALUES),
}


def _flags(of_verb: Callable[[Verb], tuple[str, ...]]) -> list[str]:
    return sorted({flag for verb in VERBS.values() for flag in of_verb(verb)})


def _name(words: list[str], usage: str) -> str:
    if not words:
        raise ConfigError("which data set?", f"Usage: {usage}")
    no_more(words[1:], usage)
    return words[0]


class _Progress:
    """How far a fetch has come, on one line of a terminal; nothing where nobody watches."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, name: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{name}  {done / 1e6:.1f} / {total / 1e6:.1f} MB\033[K")
            sys.stderr.flush()
            self._shown = True

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            sys.stderr.write("\r\033[K")
