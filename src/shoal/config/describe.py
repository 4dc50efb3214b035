"""Describe the schema: every section, choice and setting, with the sentences under the fields."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal.config.flags import Flag
from shoal.config.kinds import choices, kinds_of, literals
from shoal.config.schema import SHORT_FLAGS, Custom, RunConfig


class Section(NamedTuple):
    """A section, or one choice of it (`optimizer = adam`): its sentence, and a flag for each of its settings."""

    path: str
    name: str
    is_default: bool
    sentence: str
    flags: list[Flag]


def sections() -> list[Section]:
    """Every section and choice of the schema, the settings outside of sections first."""
    sentences, defaults = _sentences(), RunConfig()
    found = [Section("", "", True, "", list(_flags(defaults, "", sentences)))]
    for section, kind in kinds_of(RunConfig).items():
        default = getattr(defaults, section)
        for choice in choices(kind):
            if choice is not Custom:
                is_default = type(default) is choice
                made = default if is_default else choice()
                name = made.name if literals(kinds_of(choice).get("name")) else ""
                flags = list(_flags(made, f"{section}.", sentences))
                found.append(Section(section, name, is_default, inspect.getdoc(choice) or "", flags))
    return found


def takes_custom(path: str) -> bool:
    """Whether a section also takes a user's own `package.module:function`."""
    return Custom in choices(kinds_of(RunConfig)[path])


def _flags(owner: Any, prefix: str, sentences: dict[tuple[str, str], str]) -> Iterator[Flag]:
    """A flag for each plain setting of a section; `owner` has the defaults, as they are resolved in a run."""
    for key, kind in kinds_of(type(owner)).items():
        if not choices(kind) and not (key == "name" and literals(kind)):
            path = f"{prefix}{key}"
            short = tuple(f"--{name}" for name, target in SHORT_FLAGS.items() if target == path)
            sentence = sentences.get((type(owner).__name__, key), "")
            yield Flag(f"--{path}", sentence, kind, getattr(owner, key), aliases=short)


def _sentences() -> dict[tuple[str, str], str]:
    """The string under each field, by (class, field), from the source: Python keeps no docstrings of fields."""
    owners = {RunConfig, *(choice for kind in kinds_of(RunConfig).values() for choice in choices(kind))}
    found: dict[tuple[str, str], str] = {}
    for source in {inspect.getsourcefile(owner) for owner in owners}:
        for node in ast.parse(Path(str(source)).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found |= {(node.name, field): text for field, text in _under_fields(node)}
    return found


def _under_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(text.value.value).split())
