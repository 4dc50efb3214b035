"""The files of a student's folder that hold code."""

import ast
from collections.abc import Iterator
from pathlib import Path


def code_files(folder: Path) -> list[Path]:
    """In the order of their names, and real files only.

    Editors leave links to nowhere, such as Emacs' .#model.py; a pipe would never end.
    """
    return sorted(path for path in folder.glob("*.py") if path.is_file())


def syntax(folder: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the syntax trees of these files, with its file; nothing of a file that is no Python."""
    for path in code_files(folder):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        yield from ((path, node) for node in ast.walk(tree))
