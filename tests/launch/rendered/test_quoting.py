"""Words of the user survive YAML and a shell unchanged; others are refused."""

import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.launch.rendered.kinds import compose, slurm
from shoal.launch.rendered.quoting import checked, filled

AWKWARD = [
    "--lr=0.1",
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "$$",
    "$(id)",
    "`id`",
    "第一次",
    "\\n",
    "#",
    "x: y",
    "&a",
    "*a",
]
AWKWARD += [
    "no",
    "On",
    "1",
    "1e3",
    "0x1",
    "12:30:00",
    "null",
    "~",
    "",
    "- a",
    "[a]",
    "{a}",
    "!!int",
    "%",
    "@node",
    "?gpu|",
]
PRINTABLE = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" "))


@given(st.lists(PRINTABLE))
def test_compose_and_the_shell_read_a_command_as_it_was(words):
    command = ["run", *words, *AWKWARD]
    found = yaml.safe_load(compose(command, 2, "shoal", 29500, gpu=False, course=False))
    assert [word.replace("$$", "$") for word in found["services"]["node02"]["command"]] == command
    assert not any("$" in word.replace("$$", "") for word in found["services"]["node02"]["command"])
    script = slurm(command, 2, 2, 1, False, "shoal", "01:00:00", "job.sbatch")
    assert shlex.split(script.splitlines()[-1])[3:] == command


@pytest.mark.parametrize("word", ["a\nb", "a\0", "\x1b[2J", "a\u2028b", "\x85", "\ud800"])
def test_a_line_break_or_control_character_is_refused(word):
    with pytest.raises(ConfigError, match=f"U\\+{ord(next(c for c in word if not c.isprintable())):04X}"):
        checked(["train.py", word])


def test_a_line_of_a_template_may_depend_on_a_value():
    with_gpu, without = (filled("service.yml", node="node01", rank=0, first=True, course=True, gpu=gpu, command="[a]")
                         for gpu in (True, False))  # fmt: skip
    assert with_gpu.startswith(without)
    assert "nvidia" in with_gpu
    assert "nvidia" not in without
