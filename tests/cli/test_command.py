"""A command declared as data, and a group of them: what they take, what they refuse, what they show."""

from dataclasses import dataclass

import pytest

from shoal.cli.command import Command, CommandGroup
from shoal.config.flags import Flags
from shoal.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CopyFlags(Flags):
    """What `copy` takes."""

    times: int
    """How often."""
    quiet: bool = False
    """Say nothing."""
    rate: float = 2.0
    """How fast."""


@dataclass(frozen=True)
class MoveFlags(Flags):
    """What `move` takes."""

    force: bool = False
    """Move it anyway."""


def copy(given):
    """Copy a thing.

    A second paragraph.
    """
    return given.flags.times


COPY = Command("things copy", copy, CopyFlags, words="FROM [TO]", settings=("seed", "data"))
MOVE = Command("things move", lambda given: len(given.words), MoveFlags, words="NAME …")
THINGS = CommandGroup("things", "Copy and move things.", {"copy": COPY, "move": MOVE}, more="That is all.")


def test_flags_words_and_settings_are_separated():
    given = COPY.parse(["a", "--times=3", "--seed", "-1", "b", "--data.samples", "10", "--quiet"])
    assert (given.words, given.flags.times, given.flags.quiet, given.flags.rate) == (["a", "b"], 3, True, 2.0)
    assert given.settings == ["--seed=-1", "--data.samples=10"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--times 1", "FROM is required"),
        ("a", "--times is required"),
        ("a b c --times 1", "unexpected argument 'c'"),
        ("a --tims 1", "unknown flag '--tims': did you mean '--times'?"),
        ("a --sed 1", "unknown flag '--sed': did you mean '--seed'?"),
        ("a --epochs 1", "`shoal things copy` has no --epochs"),
        ("a --times", "--times needs a value"),
        ("a --times many", "--times: expected an integer, got 'many'"),
    ],
)
def test_what_it_does_not_take_is_refused(words, sentence):
    with pytest.raises(ConfigError) as caught:
        COPY.parse(words.split())
    assert caught.value.message == sentence


def test_a_group_runs_the_command_that_is_named_wherever_the_name_stands(capsys):
    assert THINGS.execute(["copy", "a", "--times", "5"]) == 5
    assert THINGS.execute(["--times", "5", "copy", "a"]) == 5
    assert THINGS.execute(["move", "a", "b", "c"]) == 3
    with pytest.raises(ConfigError, match="unknown command 'cop': did you mean 'copy'?"):
        THINGS.execute(["cop", "a"])
    with pytest.raises(ConfigError, match="`shoal things move` has no --times: it belongs to copy"):
        THINGS.execute(["move", "a", "--times", "5"])


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_page_of_a_group_lists_its_commands(words, capsys):
    assert THINGS.execute(words) == 0
    page = capsys.readouterr().out
    assert page.startswith("Usage: shoal things COMMAND …\n\nCopy and move things.\n")
    assert "  copy  Copy a thing.\n" in page
    assert page.endswith("That is all.\n")


@pytest.mark.parametrize("words", [["copy", "--help"], ["copy", "-h", "too", "many", "words"]])
def test_the_page_of_a_command_follows_from_its_declaration(words, capsys):
    assert THINGS.execute(words) == 0
    assert capsys.readouterr().out == (
        "Usage: shoal things copy FROM [TO] --times N [flags]\n\n"
        "Copy a thing.\n\n"
        "  --times N  How often.\n"
        "  --quiet    Say nothing.\n"
        "  --rate X   How fast (default 2).\n\n"
        "A second paragraph.\n"
    )
