"""Text that was read from a file, and consent to run the code that it names.

A recipe, the config.toml of a run and the metadata of a weights file are data, possibly somebody else's. Their names
select our own models, losses, optimizers, exchanges and partitions. `package.module:function` in a file runs only if
the user agrees in the same command: with --trust-code, or by giving the same name there. Names in flags and in a
program's own `RunConfig(...)` are the user's, and need no consent. See docs/security.md.
"""

from typing import Any, TypeVar, cast

from shoal.errors import ConfigError

Value = TypeVar("Value")


class FileText(str):
    """Text from a file. It equals the same text from elsewhere, but a function that it names is not called."""


def from_file(value: Value) -> Value:
    """The value with every text in it marked as read from a file.

    >>> isinstance(from_file({"model": {"name": "my:Net"}})["model"]["name"], FileText)
    True
    """
    return _texts(value, FileText)


def trusted(value: Value) -> Value:
    """The value without marks: the user agreed to run what it names."""
    return _texts(value, str)


def like(origin: object, value: Value) -> Value:
    """A value that was parsed out of `origin`, marked if `origin` is."""
    return from_file(value) if isinstance(origin, FileText) else value


def require_consent(kind: str, name: str) -> None:
    """Refuse a name of the user's own function that comes from a file.

    >>> require_consent("model", FileText("my:Net"))
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: a file names the code my:Net as its model, and files run no code without consent
      If you trust it, add --model my:Net, or --trust-code for all that the file names.
    """
    if isinstance(name, FileText):
        raise ConfigError(
            f"a file names the code {name} as its {kind}, and files run no code without consent",
            f"If you trust it, add --{kind} {name}, or --trust-code for all that the file names.",
        )


def _texts(value: Any, made: type[str]) -> Any:
    if isinstance(value, str):
        return made(value)
    if isinstance(value, dict):
        return {key: _texts(item, made) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        items = cast(list[Any] | tuple[Any, ...], value)
        return type(items)(_texts(item, made) for item in items)
    return value
