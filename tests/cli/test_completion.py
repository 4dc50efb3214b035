"""The scripts for shells: what bash completes, and that all shells have the same words."""

import re
import subprocess

import pytest

from shoal.cli.completion import SHELLS, script
from shoal.cli.main import all_commands, main
from shoal.config.sections.sync import STRATEGIES

CASES = {
    "shoal ": {*all_commands(), "help", "--version"},
    "shoal tr": {"trace", "train"},
    "shoal train ": {"gpt-tiny", "quickstart"},
    "shoal train --optimizer ": {"gd", "sgd", "adam", "adamw"},
    "shoal train quickstart --optimizer=ada": {"adam", "adamw"},
    "shoal train --json --mod": {"--model"},
    "shoal train --model.h": {"--model.hidden", "--model.heads"},
    "shoal compare quickstart --strategy.offload ": {"none", "memory", "file"},
    "shoal train --strategy pipeline+t": {each for each in STRATEGIES if each.startswith("pipeline+t")},
    "shoal memory --exchange robust:": {"median", "trimmed_mean", "krum"},
    "shoal train --lr ": set(),
    "shoal data ": {"list", "fetch", "verify", "partition"},
    "shoal data partition --al": {"--alpha", "--allow-empty"},
    "shoal lab 3 --device ": {"cpu", "cuda"},
    "shoal help train zer": {"zero"},
    "shoal compare --help optim": {"optimizer"},
    "shoal completion ": {*SHELLS},
    "shoal explain power": {"powersgd"},
}


def test_bash_completes_commands_flags_and_choices(tmp_path):
    path = tmp_path / "shoal.bash"
    path.write_text(script("bash"))
    ask = 'COMP_LINE=$line COMP_POINT=${#line}; _shoal; echo "${COMPREPLY[*]}"'
    done = subprocess.run(
        ["bash", "-c", f'source {path}; for line in "$@"; do {ask}; done', "bash", *CASES],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    found = dict(zip(CASES, map(str.split, done.stdout.split("\n")), strict=False))
    assert {line: {*words} for line, words in found.items()} == CASES


def test_all_shells_have_the_same_words(capsys):
    words = []
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        rows = re.findall(r"(?:echo|set found) '(.*)'", capsys.readouterr().out)
        words.append({*rows})
    assert words[0] == words[1] == words[2]
    assert {*all_commands()} < {word for row in words[0] for word in row.split()}


@pytest.mark.parametrize("words", [["completion"], ["completion", "csh"]])
def test_another_shell_is_refused(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().out == ""
