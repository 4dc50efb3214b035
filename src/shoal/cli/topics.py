"""The pages of help of a command that takes all settings of a run: a short first one, and one for each name."""

import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

from shoal.cli import text
from shoal.config.choices import choices, kinds_of
from shoal.config.combinations import NEEDS, refused_with
from shoal.config.features import FEATURES
from shoal.config.flags import Flag, default_of, flags_of, usage_of
from shoal.config.kinds import describe, literals, without_none
from shoal.config.mesh import LAYOUT_AXES
from shoal.config.schema import SHORT_FLAGS, RunConfig
from shoal.config.sections.sync import OTHER_NAMES, STRATEGIES, unknown_strategy
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.nearest import did_you_mean, plain

CHOICES: Mapping[str, str] = {
    "data": "Data set",
    "model": "Network",
    "loss": "Loss",
    "optimizer": "Optimizer",
    "schedule": "Learning rate over time",
    "strategy": "How workers divide the training",
    "exchange": "How gradients are summed",
    "partition": "Which worker trains on which samples",
    "prune": "Weights or channels to remove",
}
"""The sections that are a choice among names."""
STRATEGY_DEFAULT = "single; ddp with several workers"
REPLICAS = "Replicas: each worker computes a part of every batch."


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
    found = [Section("", "", True, "", list(_settings_of(defaults, "--")))]
    for section, kind in kinds_of(RunConfig).items():
        default = getattr(defaults, section)
        for choice in choices(kind):
            if choice is not Custom:
                is_default = type(default) is choice
                made = default if is_default else choice()
                name = made.name if literals(kinds_of(choice).get("name")) else ""
                flags = list(_settings_of(made, f"--{section}."))
                found.append(Section(section, name, is_default, inspect.getdoc(choice) or "", flags))
    return found


def _settings_of(made: Any, prefix: str) -> Iterator[Flag]:
    """A flag for each plain setting of a section, with the default that `made` has in a run."""
    for flag in flags_of(type(made), prefix):
        if not choices(flag.kind) and not (flag.field == "name" and literals(flag.kind)):
            path = f"{prefix[2:]}{flag.field}"
            short = tuple(f"--{name}" for name, target in SHORT_FLAGS.items() if target == path)
            yield Flag(f"--{path}", flag.kind, getattr(made, flag.field), short, flag.owner, flag.field)


class Found(NamedTuple):
    """A setting, and the section or choice that has it."""

    section: Section
    flag: Flag


def short_page(names: Sequence[str], own: Sequence[Flag]) -> list[str]:
    """A line for each flag of `names`, whether a setting or a command's own, and one for each section."""
    lines = {
        name: textwrap.shorten(words, text.page_width() - 14, placeholder=" …") for name, words in _about()
    }
    return [f"Flags used most\n{text.rows(_flags(names, own))}", f"Sections\n{text.rows(lines)}"]


def page_on(name: str, own_page: str) -> str:
    """The page on a section, a strategy or another choice, a setting, or a value of one; or a command's own page."""
    pages = _pages(own_page)
    asked = plain(name)
    if asked in pages:
        return "\n\n".join(block for block in pages[asked]() if block)
    if asked in OTHER_NAMES:
        raise unknown_strategy(name)
    raise ConfigError(
        f"no section, choice or setting is called '{name[:80]}'{did_you_mean(name, pages)}",
        "`shoal train --help` lists the sections, `shoal train --help all` shows everything.",
    )


def topics() -> list[str]:
    """The names of sections and choices that have a page."""
    found = dict.fromkeys(chain(CHOICES, STRATEGIES, *((each.path, each.name) for each in sections())))
    return [*filter(None, found), "mesh", "general", "flags", "all"]


def _pages(own_page: str) -> Mapping[str, Callable[[], list[str]]]:
    """Every page by name. Where a name has several meanings, the widest one counts: a section, a choice, a setting."""
    settings: dict[str, list[Found]] = defaultdict(list)
    values: dict[str, list[Found]] = defaultdict(list)
    named: dict[str, list[Section]] = defaultdict(list)
    parts: dict[str, list[Section]] = defaultdict(list)
    for section in sections():
        parts[section.path].append(section)
        named[plain(section.name)].append(section)
        for flag in section.flags:
            found = Found(section, flag)
            for name in {plain(each) for each in (flag.field, flag.name, *flag.aliases)}:
                settings[name].append(found)
            for word in literals(flag.kind):
                values[plain(word)].append(found)
    return {
        **{name: partial(_settings, found) for name, found in (values | settings).items()},
        **{name: partial(_choices, found) for name, found in named.items() if name},
        **{path: partial(_section, path, found) for path, found in parts.items() if path},
        **{name: partial(_strategy, name, parts) for name in STRATEGIES},
        "strategy": partial(_strategies, parts),
        "mesh": partial(_mesh, parts),
        "general": partial(_section, "", parts[""]),
        "flags": lambda: [own_page],
        "all": lambda: [own_page, *settings_page(), *_mesh(parts)],
    }


def _about() -> Iterable[tuple[str, str]]:
    """A line for each section: its names, or the first sentence on it."""
    found: dict[str, list[Section]] = defaultdict(list)
    for section in sections():
        found[section.path].append(section)
    for path, about in CHOICES.items():
        names = [each.name for each in found[path]] if path in found else [*_whole(), *LAYOUT_AXES]
        yield path, f"{about}: {', '.join(names)}."
    for path, (section, *_) in found.items():
        if path and path not in (*CHOICES, "sync", *LAYOUT_AXES):
            yield path, f"{_first_part(section.sentence)}."
    general = ", ".join(flag.name for flag in found[""][0].flags if flag.field != "mesh")
    yield "general", f"Settings of no section: {general}."
    yield "flags", "The flags of this command itself, such as --json."


def _whole() -> list[str]:
    return [name for name, (layout, _) in STRATEGIES.items() if layout == "whole"]


def _flags(names: Sequence[str], own: Sequence[Flag]) -> dict[str, str]:
    """A line for each flag: the sentence up to its first stop, and the default."""
    chosen = {f"--{each.path}": each.name for each in sections() if each.is_default and each.path in CHOICES}
    found = {flag.name: flag for flag in own}
    for section in sections():
        for flag in section.flags if section.is_default else ():
            short = (*flag.aliases, flag.name)[0]
            found.setdefault(short, replace(flag, name=short))
    rows: dict[str, str] = {}
    for name in names:
        if flag := found.get(name):
            default = "" if flag.kind is bool else default_of(flag)
            usage, sentence = usage_of(flag), _first_part(flag.sentence)
        else:
            default = chosen.get(name, STRATEGY_DEFAULT)
            usage, sentence = f"{name} NAME", CHOICES[name.removeprefix("--")]
        rows[usage] = f"{sentence}{f' (default {default})' * bool(default)}."
    return rows


def _first_part(sentence: str) -> str:
    """A sentence up to its first stop."""
    return re.split(r"[:;.](?: |$)", sentence)[0]


def _section(path: str, found: list[Section]) -> list[str]:
    return ["\n".join(section_lines(path, found))]


def _settings(found: list[Found]) -> list[str]:
    """A setting, or several of one name; choices that have the same one share its lines."""
    owners: dict[str, list[str]] = defaultdict(list)
    for section, flag in found:
        short = ":NAME" * (getattr(flag.owner, "SHORT", None) == flag.field)
        words = text.bold(f"--{section.path} {section.name}{short}") if section.name else ""
        owners["\n".join(setting_lines(flag))].append(words)
    return ["\n".join([*filter(None, [", ".join(names)]), lines]) for lines, names in owners.items()]


def _choices(found: list[Section]) -> list[str]:
    """A choice: its sentence, its settings, and what it cannot be combined with."""
    blocks: list[str] = []
    for section in found:
        default = ", the default" if section.is_default else ""
        blocks += [
            f"{text.bold(f'--{section.path} {section.name}')}{default}\n{text.wrapped(section.sentence, 0)}",
            "\n".join(line for flag in section.flags for line in setting_lines(flag)),
            _not_with(f"--{section.path} {section.name}", f"--{section.path}" * (not section.is_default)),
        ]
    return blocks


def _strategy(name: str, parts: Mapping[str, list[Section]]) -> list[str]:
    """A strategy: a sentence, a command, its settings, and what it cannot be combined with."""
    layout, sync = STRATEGIES[name]
    axes = [axis for axis in layout.split("+") if layout != "whole"]
    of_sync = next(each for each in parts["sync"] if each.name == sync)
    pieces = [*(parts[axis][0] for axis in axes), *([of_sync] if not axes or sync != "ddp" else [])]
    workers = "" if name == "single" else " --workers 2"
    if "+" in name:
        workers = f" --mesh data=2,{','.join(f'{axis}=2' for axis in axes)}"
    flags = [flag for piece in pieces for flag in piece.flags]
    features = [f"layout {axis}" for axis in axes] + [f"strategy {sync if axes else name}"] * (
        of_sync in pieces
    )
    return [
        f"{text.bold(f'--strategy {name}')}\n{text.wrapped(' '.join(piece.sentence for piece in pieces), 0)}",
        f"    shoal train quickstart --strategy {name}{workers}",
        "\n".join(
            line
            for flag in flags
            for line in setting_lines(flag, flag.name.replace("--sync.", "--strategy."))
        ),
        text.wrapped("With --mesh data=N as well, N copies of the model agree by ddp, or by --sync NAME.", 0)
        if axes and sync == "ddp"
        else "",
        _not_with(*features),
    ]


def _strategies(parts: Mapping[str, list[Section]]) -> list[str]:
    of_sync = {each.name: each.sentence for each in parts["sync"]}
    sentences = {name: of_sync[STRATEGIES[name][1]] for name in _whole()}
    sentences |= {axis: parts[axis][0].sentence for axis in LAYOUT_AXES}
    return [
        f"{text.bold('--strategy NAME')}\n{CHOICES['strategy']} (default {STRATEGY_DEFAULT}).",
        text.rows(sentences),
        text.wrapped(
            "--help NAME shows a strategy with its settings, --help mesh how strategies are combined "
            f"({', '.join(name for name in STRATEGIES if '+' in name)}). "
            "A strategy of your own is package.module:Class.",
            0,
        ),
    ]


def _mesh(parts: Mapping[str, list[Section]]) -> list[str]:
    flag = next(flag for flag in parts[""][0].flags if flag.field == "mesh")
    axes = {"data=N": REPLICAS, **{f"{axis}=N": parts[axis][0].sentence for axis in LAYOUT_AXES}}
    pairs = [f"  {name:24}{layout:17}{sync}" for name, (layout, sync) in STRATEGIES.items()]
    return [
        f"{text.bold('--mesh AXES')}\n{text.wrapped(flag.sentence, 0)}",
        text.rows(axes),
        "    shoal train quickstart --mesh data=2,pipeline=2\n"
        "    shoal train quickstart --mesh data=2,tensor=2 --sync zero",
        text.wrapped(
            "A strategy is a pair: a layout says how workers divide one copy of the model, a sync how copies agree on "
            "one update. --strategy names the pair, --mesh and --sync name its parts (--help sync).",
            0,
        ),
        "\n".join([text.dim(f"  {'strategy':24}{'layout':17}sync"), *pairs]),
        "\n".join(text.wrapped(each, 0, 2) for each in remarks("mesh")),
    ]


def _not_with(*features: str) -> str:
    """What some features cannot be combined with, a line for each reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for feature in filter(FEATURES.__contains__, features):
        for other, why in refused_with(feature).items():
            by_reason[why].append(other)
    lines = [
        f"{', '.join(dict.fromkeys(others))}{f': {why}' * bool(why)}" for why, others in by_reason.items()
    ]
    return (
        "\n".join(["Cannot be combined with", *(text.wrapped(line, 2, 4) for line in lines)]) if lines else ""
    )


_STRATEGY = (
    "--strategy NAME abbreviates a pair of a layout and a sync (--help mesh), and --strategy.KEY sets an option of "
    "that sync. With several workers or --mesh, and no --sync, the sync is ddp."
)


def settings_page() -> list[str]:
    """Every section, its choices and their settings; a block each."""
    by_path = groupby(sections(), lambda section: section.path)
    return ["\n".join(section_lines(path, list(found))) for path, found in by_path]


def section_lines(path: str, found: list[Section]) -> list[str]:
    """A section with all its choices, their settings, and what these refuse."""
    lines: list[str] = []
    if found[0].name:
        own = ", or package.module:function" * (Custom in choices(kinds_of(RunConfig)[path]))
        lines.append(f"{text.bold(f'[{path}]')}  --{path} NAME, one of these{own}:")
        if path == "sync":
            lines.append(text.wrapped(_STRATEGY, 2))
    elif path:
        about = text.wrapped(f"[{path}]  {found[0].sentence}", 0, 2)
        lines.append(about.replace(f"[{path}]", text.bold(f"[{path}]"), 1))
    for choice in found:
        if choice.name:
            default = " (default)" if choice.is_default else ""
            about = text.wrapped(f"{choice.name}{default}: {choice.sentence}", 2, 4)
            lines.append(about.replace(choice.name, text.bold(choice.name), 1))
        lines += [line for flag in choice.flags for line in setting_lines(flag)]
    if path:
        lines += [text.dim(text.wrapped(each, 2, 4)) for each in remarks(path, f"{path}.name")]
    return lines


def setting_lines(flag: Flag, name: str = "") -> list[str]:
    """A setting, also under another name: its flags, kind and default; its sentence; what it refuses."""
    default = default_of(flag) or ("none" if flag.default is None else "")
    kind = describe(flag.kind if flag.default is None else without_none(flag.kind))
    kind = kind.removeprefix("an ").removeprefix("a ")
    names = ", ".join((*flag.aliases, name or flag.name))
    about = f"{kind} (default {default})" if default else kind
    return [
        text.wrapped(f"{names}  {about}", 4, 12).replace(about, text.dim(about)),
        text.wrapped(flag.sentence, 8),
        *(text.dim(text.wrapped(each, 8, 10)) for each in remarks(flag.name.removeprefix("--"))),
    ]


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
