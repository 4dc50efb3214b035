"""What programs on top of shoal may import: a written list, and the labs keep to it."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import shoal

SOURCE = Path(shoal.__file__).parents[1]
KIT = sorted(f"shoal.kit.{path.stem}" for path in (SOURCE / "shoal" / "kit").glob("[!_]*.py"))
ALLOWED = {"shoal", "shoal.data", "shoal.models", "shoal.optim", *KIT}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_labs_import_fifteen_modules_at_most():
    found = {name for path in (SOURCE / "shoal_labs").rglob("*.py") for name in imported(path)}
    found = {name for name in found if name.partition(".")[0] == "shoal"}
    assert len(ALLOWED) <= 15
    assert found <= ALLOWED


@pytest.mark.parametrize("name", KIT)
def test_a_module_lists_what_it_offers(name):
    module = import_module(name)
    assert module.__all__
    assert all(hasattr(module, each) for each in module.__all__)
