"""A user's own exchange: `package.module:function`, called as `function(group, bucket, **options)`."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.config.custom import check_options, current_directory_importable, load
from shoal.config.schema import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.parallel.exchange.exchange import Done


@dataclass(frozen=True)
class Own:
    """A function that makes the bucket the sum of all workers' buckets, and gives a `Work`, or None when it is over.

    A class is made once on every worker, with the options, and then called with group and bucket: it may remember
    something. What the function declares about itself are attributes of it::

        bears = 1                      so many bad workers may send anything at all
        is_rule = True                 it is no sum: a median, a vote
        precision = torch.bfloat16     its sums are as precise as this, and no more

    What it raises is told with its name; an error of the group (a worker that is gone) is passed on as it is.
    """

    name: str
    call: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    bears: int = 0
    is_rule: bool = False
    precision: torch.dtype | None = None

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Call it, and see that it gave what one can wait for."""
        with _told_with_its_name(self.name):
            given = self.call(group, bucket, **self.options)
        if given is None:
            return Done()
        if not (callable(getattr(given, "wait", None)) and callable(getattr(given, "done", None))):
            raise ConfigError(
                f"exchange {self.name} returned a {type(given).__name__}, and not a Work or None",
                "Write the aggregate into the bucket itself, and return None or a collective's Work.",
            )
        return _OwnWork(self.name, given)


class _OwnWork:
    """A work that a user's exchange gave."""

    def __init__(self, name: str, work: Work) -> None:
        self._name = name
        self._work = work

    def wait(self) -> None:
        """Wait for it."""
        with _told_with_its_name(self._name):
            self._work.wait()

    def done(self) -> bool:
        """Ask it."""
        with _told_with_its_name(self._name):
            return self._work.done()


def load_own(config: Custom) -> Own:
    """The exchange that a path names; whatever is wrong with the path or the options is found here."""
    with current_directory_importable():
        function = load("exchange", config)
        options = dict(config.options)
        if not isinstance(function, type):
            check_options("exchange", config, function, given=2)
            return Own(config.name, function, options, **_declared(config.name, function))
        check_options("exchange", config, function)
        with _told_with_its_name(config.name):
            made = function(**options)
    if not callable(made):
        raise ConfigError(
            f"exchange {config.name} is a class whose objects cannot be called",
            "Give it a method __call__(self, group, bucket).",
        )
    return Own(config.name, made, **_declared(config.name, made))


DECLARATIONS: dict[str, tuple[type, Any]] = {
    "bears": (int, 0),
    "is_rule": (bool, False),
    "precision": (torch.dtype, None),
}
"""What a user's exchange may say about itself: the kind of each, and what is supposed without it."""


def _declared(name: str, function: Any) -> dict[str, Any]:
    values = {key: getattr(function, key, default) for key, (_, default) in DECLARATIONS.items()}
    for key, (kind, default) in DECLARATIONS.items():
        if values[key] is not default and not isinstance(values[key], kind):
            raise ConfigError(
                f"exchange {name} declares {key} = {values[key]!r}, which is no {kind.__name__}",
                f"It is {default!r} where nothing is declared.",
            )
    return values


@contextmanager
def _told_with_its_name(name: str) -> Generator[None]:
    try:
        yield
    except ShoalError:
        raise
    except Exception as error:
        told = RuntimeError(f"exchange {name} raised {type(error).__name__}: {error}")
        # With the traceback of what it stands for: the line that is shown is the user's own.
        raise told.with_traceback(error.__traceback__) from error
