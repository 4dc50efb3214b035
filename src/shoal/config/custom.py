"""Import and call the user's own `package.module:function`, with consent to run the code that a file names.

A recipe, the config.toml of a run and the metadata of a weights file are data, possibly somebody else's. Their names
select our own models, losses, optimizers, exchanges and partitions. `package.module:function` in a file runs only if
the user agrees in the same command: with --trust-code, or by giving the same name there. Names in flags and in a
program's own `RunConfig(...)` are the user's, and need no consent. See docs/en/security.md.
"""

import contextlib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, sys_exit_error, unknown
from shoal.printable import counted

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


_IMPORT_PATH = threading.RLock()
"""Workers may be threads, which share the import path: only one at a time changes it."""


@contextlib.contextmanager
def current_directory_importable() -> Generator[None]:
    """Put the current directory first on the import path, as `python -m` does; remove it afterwards."""
    here = os.getcwd()
    with _IMPORT_PATH:
        sys.path.insert(0, here)
        importlib.invalidate_caches()  # the file may be newer than the import system's cache
        try:
            yield
        finally:
            sys.path.remove(here)


@contextlib.contextmanager
def calling(kind: str, config: Custom) -> Generator[None]:
    """Around everything that runs the user's code while it is built: imports find it, and `sys.exit` is an error."""
    with current_directory_importable(), no_exit(f"{kind} {config.name}"):
        yield


@contextlib.contextmanager
def no_exit(what: str) -> Generator[None]:
    """Turn a SystemExit of the user's code into an error: the run would end with exit code 0 and no word.

    >>> with no_exit("model sys:exit"):
    ...     raise SystemExit
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: model sys:exit called sys.exit(None), which would end the whole run
      Return, or raise an exception that says what is wrong.
    """
    try:
        yield
    except SystemExit as error:
        raise sys_exit_error(what, error) from error


def load(kind: str, config: Custom) -> Callable[..., Any]:
    """The function (or class) a path names; a ConfigError names the part of the path that does not exist.

    >>> load("loss", Custom(name="math:hypot"))
    <built-in function hypot>
    >>> load("loss", Custom(name="math:hypott"))
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: loss math:hypott: unknown name in module math 'hypott': did you mean 'hypot'...
    """
    require_consent(kind, config.name)
    module_name, _, function_path = config.name.partition(":")
    found = _import(kind, config.name, module_name)
    for name in function_path.split("."):
        if not hasattr(found, name):
            known = [known for known in getattr(found, "__dict__", ()) if not known.startswith("_")]
            raise ConfigError(
                f"{kind} {config.name}: {unknown(f'name in module {module_name}', name, known)}"
            )
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(
            f"{kind} {config.name} is of type {type(found).__name__}, and cannot be called",
            f"Name a function that returns the {kind}.",
        )
    return found


ARGUMENTS = {
    "loss": "(outputs, labels)",
    "optimizer": "(params)",
    "schedule": "(step, total_steps)",
    "pipeline.schedule": "(stages, microbatches)",
    "exchange": "(group, bucket)",
    "exchange.rule": "(rows, bad)",
    "strategy": "(parts)",
}
"""What functions of the user's own are called with, before their options."""

WITHOUT_OPTIONS = ("exchange.codec", "exchange.rule", "pipeline.schedule")
"""What no settings are given to."""


def check_options(kind: str, config: Custom, function: Callable[..., Any], given: int = 0) -> None:
    """Refuse options the function does not take; `given` arguments are passed by position before them."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have none
        return
    options = dict(config.options)
    try:
        signature.bind_partial(*[None] * given)
    except TypeError:
        raise ConfigError(
            f"{kind} {config.name} is declared as {config.name.rpartition(':')[2]}{signature}, and cannot take "
            f"{counted(given, 'argument')}",
            f"Declare it with {ARGUMENTS.get(kind, 'these arguments')} first.",
        ) from None
    try:
        signature.bind(*[None] * given, **options)
    except TypeError as error:
        if kind in WITHOUT_OPTIONS:
            raise ConfigError(
                f"{kind} {config.name} takes no options, but is declared as "
                f"{config.name.rpartition(':')[2]}{signature}: {error}",
                "Give every argument a default.",
            ) from error
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items()) or "no options"
        raise ConfigError(
            f"{kind} {config.name} cannot be called with {shown}: {error}",
            f"It is declared as {config.name.rpartition(':')[2]}{signature}; use --{kind}.KEY VALUE.",
        ) from error


def _import(kind: str, path: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            bare = module_name.removesuffix(".py")
            raise ConfigError(
                f"{kind} {path}: there is no module '{missing}' here or among the installed packages",
                f"Modules are searched for in the current directory first: {os.getcwd()}"
                if bare == module_name
                else f"Name the module without .py: {bare}:{path.partition(':')[2]}",
            ) from error
        raise ConfigError(
            f"{kind} {path}: module '{module_name}' imports '{missing}', which is not installed",
            f"Install it, or remove the import from {module_name}.",
        ) from error
    except Exception as error:  # any exception: this runs the user's code
        raise ConfigError(
            f"{kind} {path}: importing '{module_name}' failed with {type(error).__name__}: {error}",
            f"`python -c 'import {module_name}'` shows where.",
        ) from error
