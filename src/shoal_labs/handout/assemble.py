"""Puts a student's file together: a solution in which imports from `common.py` are replaced by the imported code.

The code follows the solution's own constants, in the order of `common.py`, with everything that it uses from there.
"""

import ast
import sys
from collections.abc import Collection, Iterable
from importlib import resources
from typing import NamedTuple

COMMON = "shoal_labs.handout.common"
COLUMNS = 110
Definition = ast.FunctionDef | ast.ClassDef


class Imported(NamedTuple):
    """A name that a file imports."""

    module: str
    """The module in which it is; empty for `import module`."""
    text: str
    """As it stands in the statement, such as `torch.distributed as dist`."""
    name: str
    """What the file calls it."""


def assembled(source: str, package: str) -> str:
    """The solution without imports from this project; other files of `package` lie beside it in the same folder."""
    tree, lines = ast.parse(source), source.splitlines()
    statements = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    first = next(_start(node) for node in tree.body if isinstance(node, Definition)) - 1
    imported = _imported(tree)
    needed, code = _from_common({each.name for each in imported if each.module == COMMON})
    own = [each._replace(module=each.module.removeprefix(f"{package}.")) for each in imported]
    block = _import_block({*needed, *(each for each in own if each.module != COMMON)})
    header, constants = lines[: statements[0].lineno - 1], lines[statements[-1].end_lineno : first]
    top = ["\n".join(header), block, "\n".join(constants)]
    opening = "\n\n".join(text.strip() for text in top if text.strip())
    return "\n\n\n".join([opening, *code, "\n".join(lines[first:])]) + "\n"


def _imported(tree: ast.Module) -> list[Imported]:
    return [
        Imported(getattr(node, "module", ""), ast.unparse(name), name.asname or name.name)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]


def _from_common(wanted: Collection[str]) -> tuple[list[Imported], list[str]]:
    """What the code of these names imports, and the code, with all that it uses."""
    text = (resources.files("shoal_labs.handout") / "common.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    definitions = {node.name: node for node in tree.body if isinstance(node, Definition)}
    used = set(wanted)
    for name in reversed(definitions):  # a definition uses only those above it
        if name in used:
            used |= {each.id for each in ast.walk(definitions[name]) if isinstance(each, ast.Name)}
    chosen = [node for name, node in definitions.items() if name in used]
    code = ["\n".join(lines[_start(node) - 1 : node.end_lineno]) for node in chosen]
    return [each for each in _imported(tree) if each.name in used], code


def _start(node: Definition) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _import_block(imported: Iterable[Imported]) -> str:
    """The statements as a formatter sorts them: the standard library, torch, the files beside this one."""
    statements: dict[tuple[int, bool, str], list[str]] = {}
    for module, text, _ in sorted(imported):
        root = (module or text).partition(".")[0].split()[0]
        group = 0 if root in sys.stdlib_module_names else 1 if root == "torch" else 2
        statements.setdefault((group, bool(module), module or text), []).append(text)
    groups = {0: "", 1: "", 2: ""}
    for (group, _, module), names in sorted(statements.items()):
        groups[group] += _statement(module, names) + "\n"
    return "\n".join(text for text in groups.values() if text)


def _statement(module: str, names: list[str]) -> str:
    if names == [module]:
        return f"import {module}"
    line = f"from {module} import {', '.join(names)}"
    several = "".join(f"    {name},\n" for name in names)
    return line if len(line) <= COLUMNS else f"from {module} import (\n{several})"
