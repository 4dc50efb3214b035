"""Commands declared as data: words, flags and help. Parsing, errors and the page of help follow from that."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from shoal.cli import text
from shoal.config.flags import Flag, Flags, flags_of, is_flag, sentence_of, split, usage_of
from shoal.errors import ConfigError, unknown
from shoal.nearest import did_you_mean

F = TypeVar("F", bound=Flags)


@dataclass(frozen=True)
class Given(Generic[F]):
    """What the user gave to a command."""

    command: "Command[F]"
    flags: F
    words: list[str] = field(default_factory=list[str])
    settings: list[str] = field(default_factory=list[str])
    """The flags of a run's settings, `--epochs=3`, for `config.read`."""
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command(Generic[F]):
    """A command, or a command of a command: `shoal data fetch`. The docstring of `run` is its page of help."""

    name: str
    run: Callable[[Given[F]], int]
    flags: type[F]
    words: str = ""
    """The words it takes, as the usage shows them: NAME is required, [NAME] is not, `…` means any number."""
    settings: tuple[str, ...] = ()
    """The settings of a run whose flags it takes, too, by section or path; `*` is all of them."""
    details: Callable[[], Sequence[str]] = tuple
    """The end of the page, if it is not known in advance."""
    used_most: tuple[str, ...] = ()
    """The flags of the first page, if it cannot hold all."""
    summary: str = ""
    """The first paragraph of the page, if not that of the docstring."""
    stop_at_word: bool = False
    """Whether everything after the first word belongs to that word, as in `shoal launch PROGRAM …`."""

    @property
    def paragraphs(self) -> list[str]:
        """The page of help between usage and flags; the first paragraph is the summary."""
        summary, *more = (inspect.getdoc(self.run) or "").split("\n\n")
        return [self.summary or summary, *more]

    @property
    def usage(self) -> str:
        """How it is called, on one line."""
        flags = [flag for flag in flags_of(self.flags) if flag.name != "--help"]
        required = [usage_of(flag) for flag in flags if flag.is_required]
        optional = ["[flags]"] if len(flags) > len(required) else []
        settings = ["[--section.key value …]"] if "*" in self.settings else []
        words = self.words.split()
        ordered = [*required, *optional, *words] if self.stop_at_word else [*words, *required, *optional]
        return " ".join(["shoal", self.name, *ordered, *settings])

    def page(self) -> str:
        """The page of help."""
        flags = {usage_of(flag): sentence_of(flag) for flag in flags_of(self.flags) if flag.name != "--help"}
        summary, *more = self.paragraphs
        blocks = [f"Usage: {self.usage}", summary, text.rows(flags), *more, *self.details()]
        return "\n\n".join(text.paragraph(block) for block in blocks if block)

    def help_on(self, topic: str) -> str:
        """The first page of help, or the page on a topic; commands that take all settings of a run have topics."""
        if "*" not in self.settings:
            return self.page()
        from shoal.cli.topics import page_on, short_page

        if topic:
            return page_on(topic, self.page())
        ways = (
            f"`shoal {self.name} --help NAME` shows a section, a strategy or another choice, or a setting (data, zero, "
            "adam, lr). --help all shows everything."
        )
        if not self.used_most:
            return f"{self.page()}\n\n{text.paragraph(f'{ways} `shoal train --help` lists the sections.')}"
        summary, examples, *_ = self.paragraphs
        blocks = [
            f"Usage: {self.usage}",
            summary,
            examples,
            *short_page(self.used_most, flags_of(self.flags)),
        ]
        return "\n\n".join([*blocks, text.paragraph(ways)])

    def execute(self, argv: Sequence[str], group: "CommandGroup | None" = None) -> int:
        """Parse, then run the command or show its page; the exit code."""
        given = self.parse(argv, group)
        if given is None:
            # The topic stands after --help: `shoal train quickstart --help` asks for the first page.
            asked = next(number for number, word in enumerate(argv) if word.startswith(("--help", "-h")))
            words = split(argv[asked:], lambda name: find_flag(self.name, [self], name, group))[1]
            text.show(self.help_on(words[0] if words else ""))
            return 0
        return self.run(given)

    def parse(self, argv: Sequence[str], group: "CommandGroup | None" = None) -> Given[F] | None:
        """What the user gave, checked against the declaration; None for --help."""
        own = flags_of(self.flags)
        found, words = split(argv, lambda name: find_flag(self.name, [self], name, group), self.stop_at_word)
        texts: dict[str, list[str]] = {}
        settings: list[str] = []
        for flag, value in found:
            if flag in own:
                texts.setdefault(flag.field, []).append(value)
            else:
                settings.append(f"{flag.name}={value}")
        values = {flag.field: flag.read(texts[flag.field]) for flag in own if flag.field in texts}
        if values.get("help"):
            return None
        expected, hint = self.words.split(), f"Usage: {self.usage}"
        if not all(word.strip() for word in (words[:1] if self.stop_at_word else words)):
            raise ConfigError("an argument is empty", hint)
        required = [word for word in expected if word[0] not in "[…"]
        missing = [flag.name for flag in own if flag.is_required and flag.field not in values]
        late = [word for word in words[1:] if self.stop_at_word and word.partition("=")[0] in missing]
        if late:
            name = late[0].partition("=")[0]
            raise ConfigError(
                f"{name} must come before {words[0]}: flags after {words[0]} are passed to it", hint
            )
        if len(words) < len(required) or missing:
            raise ConfigError(f"{[*required[len(words) :], *missing][0]} is required", hint)
        if len(words) > len(expected) and "…" not in self.words:
            raise ConfigError(f"unexpected argument '{words[len(expected)]}'", hint)
        return Given(self, self.flags(**values), words, settings, tuple(argv))


@dataclass(frozen=True)
class CommandGroup:
    """A command that consists of commands."""

    name: str
    summary: str
    commands: Mapping[str, Command[Any]]
    kind: str = "command"
    more: str = ""
    """What stands below the commands in the help."""

    @property
    def paragraphs(self) -> list[str]:
        """The page of help; the first paragraph is the summary."""
        hint = f"`shoal {self.name} {self.kind.upper()} --help` lists the flags of each."
        rows = text.rows({name: command.paragraphs[0] for name, command in self.commands.items()})
        return [self.summary, rows, hint, self.more]

    def execute(self, argv: Sequence[str], _group: None = None) -> int:
        """Run the command that the first word names; without one, show the page of help."""
        several = list(self.commands.values())
        words = (
            argv
            if argv and not is_flag(argv[0])
            else split(argv, lambda name: find_flag(self.name, several, name))[1]
        )
        if not words:
            usage = f"Usage: shoal {self.name} {self.kind.upper()} …"
            page = "\n\n".join(text.paragraph(block) for block in (usage, *self.paragraphs) if block)
            text.show(several[0].page() if len(several) == 1 else page)
            return 0
        if words[0] not in self.commands:
            raise ConfigError(
                unknown(self.kind, words[0], self.commands), f"`shoal {self.name} --help` lists them."
            )
        rest = list(argv)
        rest.remove(words[0])
        return self.commands[words[0]].execute(rest, self)


def find_flag(
    command: str, among: Sequence[Command[Any]], name: str, group: CommandGroup | None = None
) -> Flag:
    """The flag of this name among the flags of commands and the settings they take; an unknown one is refused."""
    flags = [flag for each in among for flag in flags_of(each.flags)]
    known = [flag.name for flag in flags]
    for flag in flags:
        if flag.matches(name):
            return flag
    taken = {path for each in among for path in each.settings}
    if taken:
        from shoal.config.read import known_flags, path_of, setting

        def is_taken(flag: str) -> bool:
            path = path_of(flag)
            return path is not None and bool(taken & {"*", path, path.partition(".")[0]})

        if is_taken(name):
            return setting(name)
        if path_of(name):
            hint = f"Of the settings of `shoal train`, it takes those of {', '.join(sorted(taken))}."
            raise ConfigError(f"`shoal {command}` has no {name}", hint)
        known += filter(is_taken, known_flags())
    hint = f"`shoal {command} --help{' all' * ('*' in taken)}` lists the flags."
    siblings = group.commands.items() if group else ()
    owners = [key for key, each in siblings if any(flag.matches(name) for flag in flags_of(each.flags))]
    if owners:
        raise ConfigError(f"`shoal {command}` has no {name}: it belongs to {', '.join(owners)}", hint)
    raise ConfigError(f"unknown flag '{name}'{did_you_mean(name, known)}", hint)
