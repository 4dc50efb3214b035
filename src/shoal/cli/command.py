"""Commands declared as data: words, flags and help. Parsing, errors and the page of help follow from that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.cli import text
from shoal.config.flags import Flag, is_flag, split
from shoal.errors import ConfigError, unknown
from shoal.nearest import did_you_mean

HELP = Flag("--help", kind=bool, default=False, aliases=("-h",))

Block = str | Mapping[str, str]
"""A piece of a page of help: a paragraph (see `text.paragraph`), or rows of two columns."""


@dataclass(frozen=True)
class Command:
    """A command, or a command of a command: `shoal data fetch`."""

    name: str
    summary: str
    run: "Callable[[Given], int]" = lambda given: 0
    words: str = ""
    """The words it takes, as the usage shows them: NAME is required, [NAME] is not, `…` means any number."""
    flags: tuple[Flag, ...] = ()
    settings: tuple[str, ...] = ()
    """The settings of a run whose flags it takes, too, by section or path; `*` is all of them."""
    details: Callable[[], Sequence[Block]] = tuple
    """What stands below the flags in the help."""
    commands: Mapping[str, "Command"] = field(default_factory=dict[str, "Command"])
    """The commands it consists of, if it does."""
    kind_of_command: str = "command"
    stop_at_word: bool = False
    """Whether everything after the first word belongs to that word, as in `shoal launch PROGRAM …`."""

    @property
    def usage(self) -> str:
        """How it is called, on one line."""
        required = [flag.usage for flag in self.flags if flag.required]
        optional = ["[flags]"] if len(self.flags) > len(required) else []
        settings = ["[--section.key value …]"] if "*" in self.settings else []
        words = [self.kind_of_command.upper(), "…"] if self.commands else self.words.split()
        flags_first = [*required, *optional, *words] if self.stop_at_word else [*words, *required, *optional]
        return " ".join(["shoal", self.name, *flags_first, *settings])


@dataclass(frozen=True)
class Given:
    """What the user gave to a command."""

    command: Command
    values: Mapping[str, Any]
    """The value of every flag: given, or the default."""
    present: frozenset[str] = frozenset()
    """The flags that were given."""
    words: list[str] = field(default_factory=list[str])
    settings: list[str] = field(default_factory=list[str])
    """The flags of a run's settings, `--epochs=3`, for `config.read`."""
    argv: tuple[str, ...] = ()

    def __getitem__(self, flag: str) -> Any:
        return self.values[flag]


def execute(command: Command, argv: Sequence[str]) -> int:
    """Parse, then run the command or show its page; the exit code."""
    given = parse(command, argv)
    if given["--help"]:
        show_help(given.command)
        return 0
    return given.command.run(given)


def parse(command: Command, argv: Sequence[str]) -> Given:
    """What the user gave, checked against the declaration.

    >>> fetch = Command("fetch", "", words="NAME", flags=(Flag("--from"), Flag("--tries", kind=int)))
    >>> given = parse(fetch, ["mnist", "--tries=3"])
    >>> given.words, given["--tries"], given["--from"], sorted(given.present)
    (['mnist'], 3, None, ['--tries'])
    """
    siblings = command.commands
    if siblings:
        several = tuple(siblings.values())
        words = (
            argv
            if argv and not is_flag(argv[0])
            else split(argv, lambda name: _find(command, several, name))[1]
        )
        if not words:
            return Given(command, {"--help": True})
        if words[0] not in siblings:
            hint = f"`shoal {command.name} --help` lists them."
            raise ConfigError(unknown(command.kind_of_command, words[0], siblings), hint)
        command, argv = siblings[words[0]], list(argv)
        argv.remove(words[0])

    found, words = split(argv, lambda name: _find(command, (command,), name, siblings), command.stop_at_word)
    texts: dict[Flag, list[str]] = {}
    settings: list[str] = []
    for flag, value in found:
        if flag in (*command.flags, HELP):
            texts.setdefault(flag, []).append(value)
        else:
            settings.append(f"{flag.name}={value}")
    values = {
        flag.name: flag.read(texts[flag]) if flag in texts else flag.default
        for flag in (*command.flags, HELP)
    }
    given = Given(command, values, frozenset(flag.name for flag in texts), words, settings, tuple(argv))
    if not given["--help"]:
        _check_complete(given)
    return given


def _find(
    command: Command, among: Sequence[Command], name: str, siblings: Mapping[str, Command] | None = None
) -> Flag:
    """The flag of this name among commands, or among the settings they take."""
    flags = [*(flag for each in among for flag in each.flags), HELP]
    for flag in flags:
        if flag.matches(name):
            return flag
    taken = {path for each in among for path in each.settings}
    known = [flag.name for flag in flags]
    if taken:
        from shoal.config.read import known_flags, path_of, setting

        def is_taken(flag: str) -> bool:
            path = path_of(flag)
            return path is not None and bool(taken & {"*", path, path.partition(".")[0]})

        if is_taken(name):
            return setting(name)
        if path_of(name):
            hint = f"Of the settings of `shoal train`, it takes those of {', '.join(sorted(taken))}."
            raise ConfigError(f"`shoal {command.name}` has no {name}", hint)
        known += filter(is_taken, known_flags())
    owners = [
        other for other, each in (siblings or {}).items() if any(flag.matches(name) for flag in each.flags)
    ]
    if owners:
        raise ConfigError(
            f"`shoal {command.name}` has no {name}: it belongs to {', '.join(owners)}", _usage(command)
        )
    raise ConfigError(
        f"unknown flag '{name}'{did_you_mean(name, known)}", f"`shoal {command.name} --help` lists the flags."
    )


def _check_complete(given: Given) -> None:
    """Refuse too few words, too many, and a required flag that is missing."""
    command, words = given.command, given.words
    expected = command.words.split()
    required = [word for word in expected if word[0] not in "[…"]
    missing = [flag.name for flag in command.flags if flag.required and flag.name not in given.present]
    if len(words) < len(required) or missing:
        raise ConfigError(f"{[*required[len(words) :], *missing][0]} is required", _usage(command))
    if len(words) > len(expected) and "…" not in command.words:
        raise ConfigError(f"unexpected argument '{words[len(expected)]}'", _usage(command))


def _usage(command: Command) -> str:
    return f"Usage: {command.usage}"


def show_help(command: Command) -> None:
    """The page of a command on standard output. One that consists of a single command has the page of that one."""
    if len(command.commands) == 1:
        (command,) = command.commands.values()
    blocks: list[Block] = [f"Usage: {command.usage}", command.summary]
    if command.commands:
        blocks += [
            {name: each.summary for name, each in command.commands.items()},
            f"`shoal {command.name} {command.kind_of_command.upper()} --help` lists the flags of each.",
        ]
    blocks += [{flag.usage: _sentence(flag) for flag in command.flags}, *command.details()]
    text.show(
        "\n\n".join(
            text.rows(block) if not isinstance(block, str) else text.paragraph(block)
            for block in blocks
            if block
        )
    )


def _sentence(flag: Flag) -> str:
    shown = default_of(flag)
    return (
        f"{flag.sentence.removesuffix('.')} (default {shown})."
        if shown and flag.kind is not bool
        else flag.sentence
    )


def default_of(flag: Flag) -> str:
    """The default as the user would write it; empty if there is none."""
    if isinstance(flag.default, bool):
        return str(flag.default).lower()
    if isinstance(flag.default, float):
        return f"{flag.default:g}"
    if isinstance(flag.default, tuple):
        return ",".join(map(str, flag.default))
    return "" if flag.default is None else str(flag.default)
