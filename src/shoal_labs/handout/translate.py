"""A hand-out's docstrings in Chinese."""

import ast
import tomllib
from functools import cache
from importlib import resources

Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def in_chinese(source: str) -> str:
    """The same program with its docstrings replaced by those of `docstrings.toml`; one that is not there stays."""
    lines, translations = source.splitlines(), _translations()
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, Documented)]
    # From the end, so that the line numbers of the others stay right.
    for node in sorted((each for each in found if _docstring(each)), key=_first_line, reverse=True):
        indent = " " * node.body[0].col_offset
        text = translations.get(_docstring(node), _docstring(node)).splitlines()
        several = [f"{indent}{line}".rstrip() for line in text[1:]]
        end = [f'{indent}"""'] if several else []
        first = f'{indent}"""{text[0]}' + ("" if several else '"""')
        lines[_first_line(node) - 1 : node.body[0].end_lineno] = [first, *several, *end]
    return "\n".join(lines) + "\n"


def _docstring(node: Documented) -> str:
    return ast.get_docstring(node) or ""


def _first_line(node: Documented) -> int:
    return node.body[0].lineno


@cache
def _translations() -> dict[str, str]:
    text = (resources.files("shoal_labs.handout") / "docstrings.toml").read_text(encoding="utf-8")
    return {each["en"]: each["zh"] for each in tomllib.loads(text)["docstring"]}
