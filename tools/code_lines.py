"""Count lines of code by room: docstrings, comments and blank lines do not count.

    python tools/code_lines.py [REVISION …]

Without a revision, the working tree. Several revisions stand side by side, each a column.
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = "src/shoal/"
_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """How many lines hold code.

    >>> code_lines('"Docstring."\\n\\nx = 1  # a reason\\n# a comment\\n')
    1
    """
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        # A string that stands alone is a docstring, also below a field.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def by_room(sources: dict[str, str]) -> Counter[str]:
    """Lines of code of every folder directly below the package; files beside them count as one room."""
    rooms = Counter[str]()
    for path, source in sources.items():
        room, slash, _ = path.removeprefix(SOURCE).partition("/")
        rooms[room if slash else "(top)"] += code_lines(source)
    return rooms


def sources_of(revision: str | None) -> dict[str, str]:
    """The package's files at a revision, or as they lie in the working tree."""
    if revision is None:
        return {str(path): path.read_text() for path in Path(SOURCE).rglob("*.py")}
    listed = _git("ls-tree", "-r", "--name-only", revision, SOURCE).split("\n")
    return {path: _git("show", f"{revision}:{path}") for path in listed if path.endswith(".py")}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*")
    revisions: list[str] = parser.parse_args().revisions
    columns = {name or "now": by_room(sources_of(name)) for name in (revisions or [None])}
    rooms = sorted(set[str]().union(*columns.values()))
    print(f"{'room':12}" + "".join(f"{name[:12]:>14}" for name in columns))
    for room in rooms:
        print(f"{room:12}" + "".join(f"{column[room]:14,}" for column in columns.values()))
    print(f"{'all':12}" + "".join(f"{column.total():14,}" for column in columns.values()))


if __name__ == "__main__":
    main()
