"""A user's exchange: `package.module:function`, called as `function(group, bucket, **options)`."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shoal.comm.group import Finished, Group, Work
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import AllReduce, Exchange


@dataclass(frozen=True)
class UserExchange(Exchange):
    """A function that makes the bucket the sum of all workers' buckets, and returns a `Work`, or None when it is over.

    It receives the flat tensor. A class is constructed once on every worker, with the options, and its object is then
    called with group and flat tensor. If the object has methods `pieces()` and `load(pieces)`, it receives the `Bucket`
    instead, whose `key` names its state, and the state is saved in checkpoints. What the function declares are its
    attributes::

        tolerates = 1                  one bad worker may send anything at all
        is_rule = True                 it is not a sum: a median, a vote
        precision = torch.bfloat16     its sums are as precise as this

    An error that it raises is reported with its name; a group's error (a worker is gone) passes unchanged.
    """

    name: str
    call: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for key, (kind, default) in DECLARATIONS.items():
            value = self.declared(key)
            if value is not default and not isinstance(value, kind):
                raise ConfigError(
                    f"exchange {self.name} declares {key} = {value!r}: expected {kind.__name__}",
                    f"The default is {default!r}.",
                )

    def declared(self, key: str) -> Any:
        """The value of a declaration, or its default."""
        return getattr(self.call, key, DECLARATIONS[key][1])

    @property
    def tolerates(self) -> int:
        """As declared."""
        return self.declared("tolerates")

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps state, and so receives buckets."""
        return all(callable(getattr(self.call, method, None)) for method in ("pieces", "load"))

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Call it, and check that it returned something to wait for."""
        with _named(self.name):
            returned = self.call(group, bucket if self.is_stateful else bucket.flat, **self.options)
        if returned is None:
            return Finished()
        if not (callable(getattr(returned, "wait", None)) and callable(getattr(returned, "done", None))):
            raise ConfigError(
                f"exchange {self.name} returned a value of type {type(returned).__name__}, expected a Work or None",
                "Write the aggregate into the bucket itself, and return None or a collective's Work.",
            )
        return _UserWork(self.name, returned)

    def pieces(self) -> dict[str, Tensor]:
        """Its state, if it keeps any."""
        with _named(self.name):
            return dict(self.call.pieces()) if self.is_stateful else {}  # pyright: ignore[reportFunctionMemberAccess]

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore its state, if it keeps any."""
        if self.is_stateful:
            with _named(self.name):
                self.call.load(pieces)  # pyright: ignore[reportFunctionMemberAccess]


class _UserWork:
    """A work that a user's exchange returned."""

    def __init__(self, name: str, work: Work) -> None:
        self._name = name
        self._work = work

    def wait(self) -> None:
        """Wait for it."""
        with _named(self._name):
            self._work.wait()

    def done(self) -> bool:
        """Ask it."""
        with _named(self._name):
            return self._work.done()


def load_user_exchange(config: Custom) -> UserExchange:
    """The exchange of a path. Whatever is wrong with the path or the options is an error here."""
    with calling("exchange", config):
        function = load("exchange", config)
        options = dict(config.options)
        if not isinstance(function, type):
            check_options("exchange", config, function, given=2)
            return UserExchange(config.name, function, options)
        check_options("exchange", config, function)
        with _named(config.name):
            made = function(**options)
    if not callable(made):
        raise ConfigError(
            f"exchange {config.name} is a class whose objects cannot be called",
            "Give it a method __call__(self, group, bucket).",
        )
    return UserExchange(config.name, made)


DECLARATIONS: dict[str, tuple[type, Any]] = {
    "tolerates": (int, 0),
    "is_rule": (bool, False),
    "precision": (torch.dtype, None),
}
"""What a user's exchange may declare: the type and the default of each."""


@contextmanager
def _named(name: str) -> Generator[None]:
    """Report an error of the user's code with the exchange's name."""
    try:
        yield
    except ShoalError:
        raise
    except Exception as error:
        report = RuntimeError(f"exchange {name} raised {type(error).__name__}: {error}")
        # With the original traceback: the line shown is the user's.
        raise report.with_traceback(error.__traceback__) from error


def as_exchange(given: Exchange | Callable[[Group, Tensor], Any] | None) -> Exchange:
    """An exchange, or a function of (group, flat tensor), or the default."""
    if given is None or isinstance(given, Exchange):
        return given or AllReduce()
    return UserExchange(getattr(given, "__name__", type(given).__name__), given)
