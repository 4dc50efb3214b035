"""Print everything that users may write: the flags of every command, and the public names with their arguments.

    python tools/interface.py > tests/interface.txt

`tests/test_interface.py` compares this list with the committed one: a name that is lost breaks users' programs, and a
new one is a promise.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import shoal
from shoal.cli.command import CommandGroup
from shoal.cli.main import all_commands, declared
from shoal.cli.topics import sections
from shoal.config.flags import flags_of, usage_of
from shoal.config.read import known_flags


def flags() -> Iterator[str]:
    """A line for each flag of each command."""
    for name in all_commands():
        found = declared(name)
        commands = found.commands if isinstance(found, CommandGroup) else {"": found}
        for key, command in commands.items():
            words = " ".join(filter(None, ("shoal", name, key, command.words)))
            yield words
            for flag in flags_of(command.flags):
                yield f"{words} {' '.join((usage_of(flag), *flag.aliases))}"
            yield from (f"{words} takes settings: {each}" for each in command.settings)


def settings() -> Iterator[str]:
    """A line for each setting of a run, with the choice that has it."""
    yield from (f"setting {name}" for name in known_flags())
    for section in sections():
        for flag in section.flags:
            yield " ".join(filter(None, ("choice", section.path, section.name, flag.name)))


def names() -> Iterator[str]:
    """A line for each public name, and for each public method of a class."""
    for name in sorted(dir(shoal)):
        value: Any = getattr(shoal, name)
        if not callable(value):
            yield f"shoal.{name}"
            continue
        yield f"shoal.{name}({', '.join(arguments(value))})"
        for key, member in inspect.getmembers(value) if inspect.isclass(value) else ():
            if not key.startswith("_") and _is_ours(value, key):
                with_arguments = f"({', '.join(arguments(member)[1:])})" if callable(member) else ""
                yield f"shoal.{name}.{key}{with_arguments}"


def arguments(function: Any) -> list[str]:
    """The names of its arguments."""
    return [name for name in inspect.signature(function).parameters if not name.startswith("_")]


def _is_ours(owner: Any, name: str) -> bool:
    return any(name in vars(base) and base.__module__.partition(".")[0] == "shoal" for base in owner.__mro__)


def lines() -> Sequence[str]:
    """The whole list."""
    return (*flags(), *settings(), *names())


if __name__ == "__main__":
    print("\n".join(lines()))
