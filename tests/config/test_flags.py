"""The grammar of flags, on a command of our own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest

from shoal.config.flags import Flags, flags_of, split
from shoal.config.kinds import AtLeast, Several
from shoal.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ThingFlags(Flags):
    """Flags of every kind."""

    ALIASES: ClassVar = {"num_things": ("--n",)}

    num_things: Annotated[int, AtLeast(1)]
    """How many."""
    b: int = 0
    """A flag of one letter."""
    from_: Path | None = None
    """A flag that is a keyword of Python."""
    form: Literal["svg", "png"] = "svg"
    """A choice."""
    loud: bool = False
    """A switch."""
    link: Annotated[tuple[str, ...], Several()] = ()
    """A flag that may be repeated."""


FLAGS = {flag.name: flag for flag in flags_of(ThingFlags)}


def find(name):
    return next(flag for flag in FLAGS.values() if flag.matches(name))


def test_a_field_is_a_flag():
    assert list(FLAGS) == ["--help", "--num-things", "-b", "--from", "--form", "--loud", "--link"]
    assert FLAGS["--num-things"].is_required
    assert not FLAGS["--from"].is_required
    assert FLAGS["--from"].sentence == "A flag that is a keyword of Python."
    assert FLAGS["--help"].sentence == "Show this page."


@pytest.mark.parametrize(
    ("words", "flags", "others"),
    [
        ("--num-things 3 x", [("--num-things", "3")], ["x"]),
        ("--num_things=3", [("--num-things", "3")], []),
        ("--n 3", [("--num-things", "3")], []),
        ("-b -1", [("-b", "-1")], []),
        ("--from - x", [("--from", "-")], ["x"]),
        ("--from=", [("--from", "")], []),
        ("--loud x", [("--loud", "true")], ["x"]),
        ("--loud false x", [("--loud", "false")], ["x"]),
        ("--loud --b", [("--loud", "true"), ("-b", "1")], []),
    ],
)
def test_how_flags_are_written(words, flags, others):
    words = words.replace("--b", "-b 1").split()
    found, rest = split(words, find)
    assert [(flag.name, text) for flag, text in found] == flags
    assert rest == others


def test_a_value_is_checked_and_the_error_names_the_flag():
    assert FLAGS["--from"].read(["a/b"]) == Path("a/b")
    assert FLAGS["--link"].read(["0-1:1gbit", "all:5ms"]) == ("0-1:1gbit", "all:5ms")
    assert FLAGS["-b"].read(["1", "2"]) == 2
    with pytest.raises(ConfigError, match="--num-things: expected an integer ≥ 1, got 'two'"):
        FLAGS["--num-things"].read(["two"])
    with pytest.raises(ConfigError, match="unknown form 'pgn': did you mean 'png'?"):
        FLAGS["--form"].read(["pgn"])


@pytest.mark.parametrize("words", [["--from"], ["--from", "--loud"], ["-b"]])
def test_a_flag_without_its_value_is_refused(words):
    with pytest.raises(ConfigError, match="needs a value"):
        split(words, find)


def test_everything_after_the_program_is_the_programs():
    found, rest = split(["--n", "2", "program.py", "--n", "9", "-b"], find, stop_at_word=True)
    assert [text for _, text in found] == ["2"]
    assert rest == ["program.py", "--n", "9", "-b"]
