"""The settings of a run for `shoal train --help`, generated from the schema."""

from itertools import groupby

from shoal.cli.command import default_of
from shoal.cli.text import bold, dim, wrapped
from shoal.config.describe import Section, remarks, sections, takes_custom
from shoal.config.flags import Flag
from shoal.config.kinds import describe, without_none
from shoal.config.sections.sync import STRATEGIES
from shoal.errors import ConfigError, unknown

_LAYOUTS = dict.fromkeys(layout for layout, _ in STRATEGIES.values())
_PAIRS = "; ".join(
    f"layout {each}: "
    + ", ".join(
        name if name.endswith(sync) else f"{name} (sync {sync})"
        for name, (layout, sync) in STRATEGIES.items()
        if layout == each
    )
    for each in _LAYOUTS
)
_STRATEGY = (
    "--strategy NAME abbreviates a pair of a layout and a sync, and --strategy.KEY sets an option of that sync. With "
    f"--mesh and no --sync, the sync is ddp. {_PAIRS[0].upper()}{_PAIRS[1:]}."
)


def settings_page() -> list[str]:
    """Every section, its choices and their settings; a block each."""
    by_path = groupby(sections(), lambda section: section.path)
    return ["\n".join(_section(path, list(choices))) for path, choices in by_path]


def settings_of(name: str) -> list[str]:
    """One section; `strategy` has those that divide the work."""
    names = ("sync", "pipeline", "tensor") if name == "strategy" else (name,)
    known = dict.fromkeys(section.path for section in sections() if section.path)
    if name != "strategy" and name not in known:
        raise ConfigError(
            unknown("section", name, [*known, "strategy"]), "`shoal train --help` lists everything."
        )
    return ["\n".join(_section(each, [one for one in sections() if one.path == each])) for each in names]


def _section(path: str, choices: list[Section]) -> list[str]:
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
        lines += [line for flag in choice.flags for line in _setting(flag)]
    if path:
        lines += [dim(wrapped(text, 2, 4)) for text in remarks(path, f"{path}.name")]
    return lines


def _setting(flag: Flag) -> list[str]:
    default = default_of(flag) or ("none" if flag.default is None else "")
    kind = describe(flag.kind if flag.default is None else without_none(flag.kind))
    kind = kind.removeprefix("an ").removeprefix("a ")
    names = ", ".join((*flag.aliases, flag.name))
    about = f"{kind} (default {default})" if default else kind
    return [
        wrapped(f"{names}  {about}", 4, 12).replace(about, dim(about)),
        wrapped(flag.sentence, 8),
        *(dim(wrapped(text, 8, 10)) for text in remarks(flag.name.removeprefix("--"))),
    ]
