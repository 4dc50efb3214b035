"""The schema in words: what `shoal train --help` prints, read from the sentences under the fields."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from shoal.config.kinds import choices, describe, kinds_of
from shoal.config.schema import SHORT_FLAGS, Custom, RunConfig


class Setting(NamedTuple):
    """One setting as the help shows it."""

    flag: str
    short: str
    kind: str
    default: str
    sentence: str


class Section(NamedTuple):
    """One choice of one section: `optimizer = adam`, its sentence, its settings."""

    path: str
    name: str
    is_default: bool
    sentence: str
    settings: list[Setting]


def sections() -> list[Section]:
    """Every section and choice of the schema, the plain settings of a run first."""
    sentences = _sentences()
    short = {path: flag for flag, path in SHORT_FLAGS.items()}
    plain = list(_settings(RunConfig, "", sentences, short))
    found = [Section("", "", True, "", plain)]
    for field in fields(RunConfig):
        for choice in choices(kinds_of(RunConfig)[field.name]):
            if choice is Custom:
                continue
            name = str(kinds_of(choice).get("name", "")) and _default(choice, "name")
            settings = list(_settings(choice, f"{field.name}.", sentences, short))
            found.append(
                Section(
                    field.name, name, field.default_factory is choice, inspect.getdoc(choice) or "", settings
                )
            )
    return found


def takes_custom(path: str) -> bool:
    """Whether a section also takes a user's own `package.module:function`."""
    return Custom in choices(kinds_of(RunConfig)[path])


def _settings(
    owner: type, prefix: str, sentences: dict[tuple[str, str], str], short: dict[str, str]
) -> Iterator[Setting]:
    for key, kind in kinds_of(owner).items():
        if (key != "name" and not choices(kind)) or (owner.__name__, key) == ("OutputConfig", "name"):
            path = f"{prefix}{key}"
            yield Setting(
                flag=f"--{path}",
                short=f"--{short[path]}" if path in short else "",
                kind=describe(kind),
                default=_default(owner, key),
                sentence=sentences.get((owner.__name__, key), ""),
            )


def _default(owner: type, key: str) -> str:
    default: Any = next(field.default for field in fields(owner) if field.name == key)
    if default is MISSING or default == "":
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return str(default).lower() if default is None or isinstance(default, bool) else f"{default}"


def _sentences() -> dict[tuple[str, str], str]:
    """The string that stands under each field, by (class, field): Python keeps no docstrings of fields."""
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
