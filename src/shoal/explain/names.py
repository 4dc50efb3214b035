"""What can be explained, by kind, and the row of `texts.toml` for each name. Does not load torch."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from shoal.config.choices import kinds_of
from shoal.config.kinds import literals
from shoal.config.sections.compression import CODEC_ROWS
from shoal.config.sections.exchange import RULES, ByConfig
from shoal.config.sections.sync import STRATEGIES
from shoal.errors import ConfigError
from shoal.nearest import did_you_mean
from shoal.printable import shortened
from shoal.strategies.pipeline.schedules import SCHEDULES


@dataclass(frozen=True)
class Kind:
    """One kind of thing that has names."""

    title: str
    names: tuple[str, ...]
    command: str
    """The command to try, of `name`, unless a row has its own."""


_DDP = "shoal train quickstart --steps 50 --strategy ddp"
KINDS: Mapping[str, Kind] = {
    "strategy": Kind(
        "strategy", tuple(STRATEGIES), "shoal train quickstart --steps 50 {flags} --workers {workers}"
    ),
    "codec": Kind("codec", tuple(CODEC_ROWS), f"{_DDP} --workers 2 --exchange compressed:{{name}}"),
    "rule": Kind(
        "robust rule",
        RULES,
        f'{_DDP} --workers 5 --exchange robust:{{name}} --fault "rank=1,gradient=flip"',
    ),
    "schedule": Kind(
        "pipeline schedule",
        tuple(SCHEDULES),
        "shoal train quickstart --steps 50 --strategy pipeline --workers 2 --pipeline.schedule {name}",
    ),
    "algorithm": Kind(
        "all-reduce algorithm",
        literals(kinds_of(ByConfig)["algorithm"]),
        f"{_DDP} --workers 3 --exchange by:{{name}}",
    ),
}


@dataclass(frozen=True)
class Case:
    """One way to run a strategy: what its processes hold and send."""

    flags: str
    holds: Mapping[str, Sequence[str]]
    """For each group of processes: how it holds weights, gradients and optimizer state."""
    sends: Sequence[str]
    """The collectives of a step, each with its size, such as `all_reduce n`."""
    name: str = ""
    mapped: str = ""
    """What workers of one machine do not do, because they map memory."""
    note: str = ""
    """What it sends, where `sends` cannot say it."""


@dataclass(frozen=True)
class Row:
    """What is said about one name."""

    kind: str
    name: str
    step: str
    use: str
    no_use: str
    result: str
    what: str = ""
    """Empty where the documentation of a function says it."""
    read: Sequence[str] = ()
    """Files of the package; empty where they follow from the name."""
    time: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each worker or purpose a letter for each unit of time."""
    schedule: str = ""
    """The pipeline schedule to draw instead of `time`."""
    workers: int = 4
    cases: Sequence[Case] = ()
    command: str = ""
    """The command to try; empty: the command of its kind."""

    @property
    def to_try(self) -> str:
        """The command to try: with two workers, unless a mesh needs more."""
        flags = self.cases[0].flags if self.cases else ""
        command = self.command or KINDS[self.kind].command
        return command.format(name=self.name, flags=flags, workers=self.workers if "--mesh" in flags else 2)


def row_of(name: str) -> Row:
    """The row of a name, of whatever kind.

    >>> row_of("ring").kind, row_of("by:ring").name
    ('algorithm', 'ring')
    """
    known = [each for kind in KINDS.values() for each in kind.names]
    prefix, colon, rest = name.partition(":")
    short = rest if colon and prefix in ("by", "compressed", "robust") else name
    for kind, table in KINDS.items():
        if short in table.names:
            return _row(kind, short, _texts()[kind][short])
    raise ConfigError(
        f"there is nothing to explain under the name '{shortened(name)}'{did_you_mean(short, known)}",
        "`shoal explain` lists the names.",
    )


def all_rows() -> list[Row]:
    """The rows of the file, in its order."""
    return [_row(kind, name, given) for kind, rows in _texts().items() for name, given in rows.items()]


def _row(kind: str, name: str, given: Mapping[str, Any]) -> Row:
    renamed = {"not": "no_use", "try": "command"}
    fields: dict[str, Any] = {renamed.get(key, key): value for key, value in given.items()}
    fields["cases"] = [Case(**case) for case in given.get("cases", ())]
    return Row(kind, name, **fields)


@cache
def _texts() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return tomllib.loads((resources.files("shoal.explain") / "texts.toml").read_text(encoding="utf-8"))
