"""The commands of the guide do what its pages show: `make test-docs`.

Lines that begin with `$ ` are typed, the pages of a folder in the order of the navigation, in one new folder. The lines
below a command are compared with its output: numbers may differ, and `…` stands for anything.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python)?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pages(folder):
    named = re.findall(rf"- ({folder}/[\w-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [ROOT / "docs/en" / name for name in named]


def commands(block):
    """Each command of a block, and the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


ANYTHING = (
    (re.compile("…"), ".*"),
    (re.compile("[0-9a-f]{16}"), "[0-9a-f]{16}"),
    (re.compile(r"\d[\d.,]*"), r"[\d.,]+"),
    (re.compile(r"\s+"), r"\s+"),
)
"""Parts of a line that may differ, and the pattern for each: hashes, numbers, the width of gaps."""


def pattern(line):
    parts = re.split(r"(…|\b[0-9a-f]{16}\b|\d[\d.,]*|\s+)", line.strip())
    patterns = [[shown for kind, shown in ANYTHING if kind.fullmatch(part)] for part in parts]
    return "".join(
        found[0] if found else re.escape(part) for part, found in zip(parts, patterns, strict=True)
    )


def missing(expected, printed):
    """The first line that is not printed after the lines before it; None if all are."""
    lines = iter(printed.splitlines())
    for line in expected:
        if line.strip("… ") and not any(re.fullmatch(pattern(line), each.strip()) for each in lines):
            return line
    return None


def test_numbers_hashes_and_gaps_may_differ_and_words_may_not():
    printed = "step 157  loss 0.45  4.0 s\nsha256 0123456789abcdef…\n  test accuracy  97.70 %"
    assert (
        missing(["step 9 loss 1.0 …", "…", "sha256 7b9d39be03d172b0…", "test accuracy 1 %"], printed) is None
    )
    assert missing(["step 157  gain 0.45  4.0 s"], printed) == "step 157  gain 0.45  4.0 s"
    assert (
        missing(["  test accuracy  97.70 %", "step 157  loss 0.45  4.0 s"], printed)
        == "step 157  loss 0.45  4.0 s"
    )


@pytest.mark.docs
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("folder", ["start", "tutorial"])
def test_the_commands_of_the_pages_print_what_the_pages_show(folder, tmp_path):
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": place, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    typed = 0
    for page in pages(folder):
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            if named := re.match(r"# python (\w+\.py)\n", block):
                assert language == "python"
                (tmp_path / named[1]).write_text(block, encoding="utf-8")
            for command, expected in commands(block):
                ended = subprocess.run(
                    shlex.split(command),
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                assert ended.returncode == 0, f"{page.name}: {command}\n{ended.stdout}"
                line = missing(expected, ended.stdout)
                assert line is None, f"{page.name}: {command}\ndoes not print: {line}\n{ended.stdout}"
                typed += 1
    assert typed >= 3
