"""Methods of torch's optimizers without what keeps torch's compiler away from them."""

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncompiled(method: Callable[P, T]) -> Callable[P, T]:
    """The method that torch wraps so that it is never compiled.

    The wrapper imports the compiler, which takes seconds in every process, and does nothing else for one that does not
    compile.
    """
    return inspect.unwrap(method)
