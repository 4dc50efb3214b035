"""What users may write: every flag, setting and public name of the committed list, and no other."""

import ast
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_flag_setting_or_public_name_is_lost_or_new():
    promised = (ROOT / "tests" / "interface.txt").read_text().splitlines()
    found = runpy.run_path(str(ROOT / "tools" / "interface.py"))["lines"]()
    lost, new = sorted({*promised} - {*found}), sorted({*found} - {*promised})
    assert (lost, new) == ([], []), "if this is meant: python tools/interface.py > tests/interface.txt"


def test_sentences_name_settings_that_exist():
    known = {
        word for line in (ROOT / "tests" / "interface.txt").read_text().splitlines() for word in line.split()
    }
    known |= {word.removeprefix("--") for word in known}
    named = re.compile(r"--([a-z_]+\.[a-z_]+)\b(?!\.|:)")
    for path in sorted((ROOT / "src").rglob("*.py")):
        for found in named.findall(path.read_text()):
            section = found.partition(".")[0]
            choices = [
                word for word in known if word.startswith("--") and word.endswith(found.partition(".")[2])
            ]
            assert found in known or (section in GENERAL and choices), f"{path.relative_to(ROOT)}: --{found}"


GENERAL = ("strategy",)
"""--strategy.stage is a setting of the strategy's own section, --sync.stage."""


def test_the_declaration_for_type_checkers_names_the_modules_that_are_imported():
    package = ROOT / "src" / "shoal"
    lazy = runpy.run_path(str(package / "__init__.py"))["_LAZY"]
    declared = {
        name.name: statement.module
        for statement in ast.parse((package / "__init__.pyi").read_text()).body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert declared == lazy
