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
    known = set((ROOT / "tests" / "interface.txt").read_text().split())
    named = re.compile(r"--[a-z_]+\.[a-z_]+\b(?!\.|:)")
    for path in sorted((ROOT / "src").rglob("*.py")):
        for found in {*named.findall(path.read_text())} - EXAMPLES:
            # The settings of a strategy are its own under either name.
            assert found.replace("--strategy.", "--sync.") in known, f"{path.relative_to(ROOT)}: {found}"


EXAMPLES = {"--section.key", "--optimizer.learning_rate"}
"""What stands for any setting, and a misspelt one."""


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
