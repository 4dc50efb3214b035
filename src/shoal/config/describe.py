"""Describe the schema: every section, choice and setting, and the combinations that are refused."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from shoal.config.combinations import NEEDS, refused_with
from shoal.config.features import FEATURES
from shoal.config.flags import Flag, flags_of
from shoal.config.kinds import choices, kinds_of, literals
from shoal.config.schema import SHORT_FLAGS, RunConfig
from shoal.config.sections.values import Custom


class Section(NamedTuple):
    """A section, or one choice of it (`optimizer = adam`): its sentence, and a flag for each of its settings."""

    path: str
    name: str
    is_default: bool
    sentence: str
    flags: list[Flag]


def sections() -> list[Section]:
    """Every section and choice of the schema, the settings outside of sections first."""
    defaults = RunConfig()
    found = [Section("", "", True, "", list(_flags(defaults, "--")))]
    for section, kind in kinds_of(RunConfig).items():
        default = getattr(defaults, section)
        for choice in choices(kind):
            if choice is not Custom:
                is_default = type(default) is choice
                made = default if is_default else choice()
                name = made.name if literals(kinds_of(choice).get("name")) else ""
                flags = list(_flags(made, f"--{section}."))
                found.append(Section(section, name, is_default, inspect.getdoc(choice) or "", flags))
    return found


def takes_custom(path: str) -> bool:
    """Whether a section also takes a user's own `package.module:function`."""
    return Custom in choices(kinds_of(RunConfig)[path])


def remarks(*paths: str) -> list[str]:
    """A sentence for each feature of a setting or section: the features that it refuses or needs.

    >>> remarks("train.clip_norm")
    ['--clip-norm: not with strategy rpc, --pipeline.schedule async, --memory.step_in_backward.']
    """
    found: list[str] = []
    for name in (name for name, feature in FEATURES.items() if feature.path in paths):
        needed = [f"needs {NEEDS[name][0]}"] if name in NEEDS else []
        others = refused_with(name)
        refused = [f"not with {', '.join(others)}"] if others else []
        found += [f"{name}: {'; '.join([*needed, *refused])}."] if needed or refused else []
    return found


def _flags(made: Any, prefix: str) -> Iterator[Flag]:
    """A flag for each plain setting of a section, with the default that `made` has in a run."""
    for flag in flags_of(type(made), prefix):
        if not choices(flag.kind) and not (flag.field == "name" and literals(flag.kind)):
            path = f"{prefix[2:]}{flag.field}"
            short = tuple(f"--{name}" for name, target in SHORT_FLAGS.items() if target == path)
            yield Flag(f"--{path}", flag.kind, getattr(made, flag.field), short, flag.owner, flag.field)
