"""Values of settings to try: `--sweep exchange.ratio=0.1,0.01` trains each variant with every value.

Several sweeps make all products. A variant has the keys of its own choices: a strategy without a codec has no
`exchange.ratio`, so it is trained once.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from shoal.config.mesh import LAYOUT_AXES
from shoal.config.read import Tree, path_of, read_flags
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom
from shoal.config.write import flat
from shoal.errors import ConfigError

OF_SEVERAL = ("launch", "mesh", "exchange", "partition", "pipeline", "tensor")
"""Sections for several workers."""
REFUSED = {
    "seed": "Give --seeds N for several seeds.",
    "strategy.name": "Give each strategy a variant of its own.",
    "sync.name": "Give each strategy a variant of its own.",
    "output.name": "Every run has the name of its variant and its values.",
    "output.dir": "Choose the folder of all runs with --out DIR.",
}
"""Settings that are no part of a sweep, and what to do instead."""


@dataclass(frozen=True)
class Value:
    """One value of one setting."""

    key: str
    """As the user wrote it."""
    text: str

    @property
    def path(self) -> str:
        """The path of the setting."""
        return str(path_of(f"--{self.key}"))

    @property
    def label(self) -> str:
        """What tells it from other values, as part of the name of a folder.

        >>> Value("exchange.ratio", "0.1").label, Value("exchange", "compressed:topk").label
        ('ratio=0.1', 'exchange=compressed:topk')
        """
        text = re.sub(r"[^\w.+:-]", "_", self.text)
        return f"{self.key.rpartition('.')[2]}={text}"


Combination = tuple[Value, ...]
"""A value for each of some keys."""


@dataclass(frozen=True)
class Sweep:
    """The values of each key."""

    values: tuple[Combination, ...] = ()

    def combinations(self, config: RunConfig | None = None) -> Iterator[Combination]:
        """The products of the values of all keys, or of the keys that a variant with these settings has."""
        return product(*(each for each in self.values if config is None or has(config, each[0].path)))

    def check_used(self, configs: Sequence[RunConfig]) -> None:
        """Refuse a key that no variant has."""
        for first, *_ in self.values:
            if not any(has(config, first.path) for config in configs):
                raise ConfigError(
                    f"--sweep {first.key}: no variant has the setting {first.path}",
                    f"`shoal train --help {first.path}` names the choice that it belongs to.",
                )


NO_SWEEP = Sweep()


def read_sweep(given: Sequence[str] | Mapping[str, Iterable[Any]]) -> Sweep:
    """The sweep that texts `key=value,value` describe, or a program's values by key.

    >>> len(list(read_sweep(["lr=0.1,0.01", "epochs=1,2,3"]).combinations()))
    6
    """
    pairs: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        parts = (text.partition("=") for text in given)
        pairs = [(key.strip().removeprefix("--"), values.split(",")) for key, _, values in parts]
    found: dict[str, Combination] = {}
    for key, values in pairs:
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError(f"sweep: {key} needs a list of values, got {values!r}")
        made = tuple(Value(key, _text(value)) for value in values)
        _check(key, made)
        if made[0].path in found:
            raise ConfigError(f"--sweep {key} is given twice", f"Write --sweep {key}=A,B for both values.")
        found[made[0].path] = made
    return Sweep(tuple(found.values()))


def changes_of(combination: Combination) -> Tree:
    """The settings of a combination, as flags."""
    return read_flags([f"--{each.key}={each.text}" for each in combination])


def named(variant: str, combination: Combination) -> str:
    """The name of a variant with these values, which is the name of its folder.

    >>> named("topk", (Value("exchange.ratio", "0.1"), Value("lr", "0.5")))
    'topk,ratio=0.1,lr=0.5'
    """
    return ",".join([variant, *(each.label for each in combination)])


def has(config: RunConfig, path: str) -> bool:
    """Whether a run with these settings has a setting; `single` has none that is for several workers."""
    section, _, key = path.rpartition(".")
    if config.strategy == "single" and (section in OF_SEVERAL or path in ("mesh", "train.balance")):
        return False
    if isinstance(getattr(config, section or path, None), Custom):
        return True  # its options have no schema
    sections = ("sync", *LAYOUT_AXES) if section == "strategy" else (section,)
    return bool({f"{each}.{key}".lstrip(".") for each in sections} & flat(config).keys())


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).strip()


def _check(key: str, values: Combination) -> None:
    """Refuse values that cannot be swept."""
    if not values or not all(each.text for each in values):
        raise ConfigError(
            f"--sweep needs a setting and its values, got '{key}'", "Write --sweep exchange.ratio=0.1,0.01."
        )
    changes_of(values[:1])  # refuses an unknown key
    labels = [each.label for each in values]
    if again := next((label for label in labels if labels.count(label) > 1), ""):
        raise ConfigError(
            f"--sweep {key} has the value {again.partition('=')[2]} twice", "Give each value once."
        )
    if (path := values[0].path) in REFUSED:
        raise ConfigError(f"--sweep does not take {key}", REFUSED[path])
