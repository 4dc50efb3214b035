"""Arguments of public functions, checked against their annotations before the function runs."""

import inspect
import typing
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from shoal.config.kinds import accepts, expected, literals
from shoal.errors import ArgumentError, unknown

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

EXPLAINED_ELSEWHERE = ("make_optimizer",)
"""Arguments whose functions refuse a wrong one themselves, with more to say (`shoal.optim.over.check_function`)."""


def checks_arguments(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Have every call of a function raise an ArgumentError that names an argument of another kind than annotated.

    Annotations are kinds (see `kinds`): `int`, `Annotated[float, MoreThan(0)]`, a class, a union. As in torch, numbers
    of numpy and tensors of one element count as numbers, and 0 and 1 as false and true. The function gets them as
    numbers of Python. An argument that is left out is not checked.

    Costs microseconds, so it is not for calls that a training step makes by the hundred.

    >>> from shoal.config.sections.values import Count
    >>> @checks_arguments
    ... def start(workers: Count = 1) -> int:
    ...     return workers
    >>> start(2), start()
    (2, 1)
    >>> start("two")
    Traceback (most recent call last):
        ...
    shoal.errors.ArgumentError: start(workers=…): expected an integer ≥ 1, got 'two'
    """

    called = function.__qualname__.removesuffix(".__init__")  # a user calls the class

    @wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        signature, kinds = _declared(function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own error names the missing or unknown argument
        for name, kind in kinds.items():
            if name in bound.arguments:
                bound.arguments[name] = check_argument(kind, bound.arguments[name], called, name)
        return function(*bound.args, **bound.kwargs)

    return checked


def check_argument(kind: Any, value: Any, function: str, name: str) -> Any:
    """The value, as a number of Python where it is one; an ArgumentError if it is not of this kind."""
    accepted, converted = accepts(kind, value)
    if not accepted and bool in (kind, *typing.get_args(kind)) and type(value) is int and value in (0, 1):
        return bool(value)
    if not accepted and literals(kind) and isinstance(value, str):
        raise ArgumentError(unknown(f"{function}({name}=…)", value, literals(kind)))
    if not accepted:
        raise ArgumentError(f"{function}({name}=…): {expected(kind, value)}")
    return converted


@cache
def _declared(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature of a function, and the kinds of its single arguments."""
    signature = inspect.signature(function)
    hints = typing.get_type_hints(function, include_extras=True)
    return signature, {
        name: hints[name]
        for name, each in signature.parameters.items()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and name in hints
        and name not in EXPLAINED_ELSEWHERE
    }
