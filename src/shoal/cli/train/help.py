"""The settings of a run for `--help all`: every section, choice and setting, and the refused combinations."""

import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from shoal.cli.text import bold, dim, wrapped
from shoal.cli.usage import default_of
from shoal.config.combinations import NEEDS, refused_with
from shoal.config.features import FEATURES
from shoal.config.flags import Flag, flags_of
from shoal.config.kinds import choices, describe, kinds_of, literals, without_none
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


_STRATEGY = (
    "--strategy NAME abbreviates a pair of a layout and a sync (--help mesh), and --strategy.KEY sets an option of "
    "that sync. With several workers or --mesh, and no --sync, the sync is ddp."
)


def settings_page() -> list[str]:
    """Every section, its choices and their settings; a block each."""
    by_path = groupby(sections(), lambda section: section.path)
    return ["\n".join(section_lines(path, list(choices))) for path, choices in by_path]


def section_lines(path: str, choices: list[Section]) -> list[str]:
    """A section with all its choices, their settings, and what these refuse."""
    lines: list[str] = []
    if choices[0].name:
        own = ", or package.module:function" if takes_custom(path) else ""
        lines.append(f"{bold(f'[{path}]')}  --{path} NAME, one of these{own}:")
        if path == "sync":
            lines.append(wrapped(_STRATEGY, 2))
    elif path:
        about = wrapped(f"[{path}]  {choices[0].sentence}", 0, 2)
        lines.append(about.replace(f"[{path}]", bold(f"[{path}]"), 1))
    for choice in choices:
        if choice.name:
            default = " (default)" if choice.is_default else ""
            about = wrapped(f"{choice.name}{default}: {choice.sentence}", 2, 4)
            lines.append(about.replace(choice.name, bold(choice.name), 1))
        lines += [line for flag in choice.flags for line in setting_lines(flag)]
    if path:
        lines += [dim(wrapped(text, 2, 4)) for text in remarks(path, f"{path}.name")]
    return lines


def setting_lines(flag: Flag, name: str = "") -> list[str]:
    """A setting, also under another name: its flags, kind and default; its sentence; what it refuses."""
    default = default_of(flag) or ("none" if flag.default is None else "")
    kind = describe(flag.kind if flag.default is None else without_none(flag.kind))
    kind = kind.removeprefix("an ").removeprefix("a ")
    names = ", ".join((*flag.aliases, name or flag.name))
    about = f"{kind} (default {default})" if default else kind
    return [
        wrapped(f"{names}  {about}", 4, 12).replace(about, dim(about)),
        wrapped(flag.sentence, 8),
        *(dim(wrapped(text, 8, 10)) for text in remarks(flag.name.removeprefix("--"))),
    ]
