"""Import and call the user's own `package.module:function`."""

import contextlib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import fields
from typing import Any

from shoal.config.schema import RunConfig
from shoal.config.sections.exchange import StagesConfig
from shoal.config.sections.values import Custom
from shoal.config.trust import require_consent
from shoal.errors import ConfigError, sys_exit_error, unknown
from shoal.strategies.zero.settings import ZeroConfig

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


def named_code(config: RunConfig) -> list[tuple[str, Custom]]:
    """Every function of the user's own that a run uses, with what it is used for."""
    stages = config.exchange.stages() if isinstance(config.exchange, StagesConfig) else []
    chosen: list[tuple[str, Any]] = [(field.name, getattr(config, field.name)) for field in fields(config)]
    chosen += [("exchange", exchange) for _, exchange in stages]
    if isinstance(config.sync, ZeroConfig) and config.sync.unit_of is not None:
        chosen.append(("strategy.unit_of", Custom(name=config.sync.unit_of)))
    chosen += [("logger", Custom(name=name)) for name in config.output.logger if ":" in name]
    chosen += [("metrics", Custom(name=name)) for name in config.train.metrics if ":" in name]
    return [(kind, choice) for kind, choice in chosen if isinstance(choice, Custom)]


def check_consent(config: RunConfig) -> None:
    """Refuse a run that uses a function which only a file names."""
    for kind, custom in named_code(config):
        require_consent(kind, custom.name)


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
            known = (
                [known for known in vars(found) if not known.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
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
    "exchange": "(group, bucket)",
    "strategy": "(parts)",
}
"""What functions of the user's own are called with, before their options."""


def _takes(signature: inspect.Signature, given: int) -> bool:
    """Whether a function has places for this number of arguments."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Parameter.VAR_POSITIONAL in kinds or sum(kind in by_position for kind in kinds) >= given


def check_options(kind: str, config: Custom, function: Callable[..., Any], given: int = 0) -> None:
    """Refuse options the function does not take; `given` arguments are passed by position before them."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have none
        return
    options = dict(config.options)
    if given and not _takes(signature, given):
        raise ConfigError(
            f"{kind} {config.name} is declared as {config.name.rpartition(':')[2]}{signature}, and cannot take "
            f"{given} argument{'s' * (given > 1)}",
            f"Declare it with {ARGUMENTS.get(kind, 'these arguments')} first.",
        )
    try:
        signature.bind(*[None] * given, **options)
    except TypeError as error:
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
