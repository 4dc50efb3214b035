"""Every error that shoal raises, in one tree.

::

    ShoalError                          one sentence, the values, the fix
    ├── ConfigError                     an invalid setting: unknown, of the wrong type, or in conflict with another
    │   │                               (a ValueError)
    │   ├── WrapperError                a wrapped module is used in a way that torch's wrapper refuses, too
    │   │                               (a RuntimeError, too)
    │   └── ArgumentError               an argument of a function: of the wrong type or out of range (a TypeError, too)
    ├── DataError                       a data file is missing, damaged or not what it claims to be (a ValueError)
    │   └── NothingCountedError         the count of a loss is 0 for all samples of a step
    ├── CheckpointError                 a checkpoint is missing, damaged or of another model (a RuntimeError)
    ├── DivergedError                   the loss or a gradient is not finite (an ArithmeticError)
    ├── AutogradError                   our own engine cannot record or differentiate a computation (a RuntimeError)
    ├── WorkerError                     a worker failed, as its launcher reports it (a RuntimeError)
    ├── CallbackError                   a callback of the user's own raised an exception (a RuntimeError)
    └── GroupError                      a group cannot carry out a call (a RuntimeError)
        ├── MemberError                 a member died, was stopped, failed or left
        │   └── MemberTimeoutError      a member makes no progress (a TimeoutError, too)
        ├── MismatchError               members made different calls
        └── JoinError                   workers could not form a group
            └── JoinTimeoutError        not in time (a TimeoutError, too)

Each is also the standard exception in brackets, so that a program can catch `ValueError`, `RuntimeError` or
`TimeoutError` without importing anything from here. The user can fix all of them, so the command line prints the
sentence without a traceback and exits with code 2.
"""

from collections.abc import Iterable

from shoal.nearest import did_you_mean
from shoal.printable import LONGEST


class ShoalError(Exception):
    """Base class. `hint` is the fix, printed on a line of its own."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(ShoalError, ValueError):
    """An invalid setting: unknown, of the wrong type, or in conflict with another."""


class WrapperError(ConfigError, RuntimeError):
    """A wrapped module is used in a way that torch's wrapper refuses, too, with a RuntimeError."""


class ArgumentError(ConfigError, TypeError):
    """An argument of a function or method: of the wrong type or out of range."""


class DataError(ShoalError, ValueError):
    """A data file is missing, damaged or not what it claims to be."""


class NothingCountedError(DataError):
    """The count of a loss is 0 for all samples of a step, so there is nothing to divide by."""


class CheckpointError(ShoalError, RuntimeError):
    """A checkpoint is missing, damaged or of another model."""


class DivergedError(ShoalError, ArithmeticError):
    """The loss or a gradient is not finite."""


class AutogradError(ShoalError, RuntimeError):
    """Our own engine cannot record or differentiate a computation."""


class WorkerError(ShoalError, RuntimeError):
    """A worker failed.

    `traceback` is the worker's, unless the failure was a ShoalError. `refusal` is its message if it was a ConfigError.
    """

    def __init__(
        self, message: str, hint: str, exit_code: int, traceback: str = "", refusal: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code
        self.traceback = traceback
        self.refusal = refusal


class CallbackError(ShoalError, RuntimeError):
    """A callback of the user's own raised an exception."""


class GroupError(ShoalError, RuntimeError):
    """A group cannot carry out a call."""


class MemberError(GroupError):
    """A member is gone or makes no progress: `rank` names it, `reason` is died, stopped, stuck, failed or left."""

    def __init__(self, message: str, hint: str = "", *, rank: int, reason: str) -> None:
        super().__init__(message, hint)
        self.rank = rank
        self.reason = reason


class MemberTimeoutError(MemberError, TimeoutError):
    """A member is alive and makes no progress: reason "stuck"."""


class MismatchError(GroupError):
    """Members made different calls; the message shows the call of every rank."""


class JoinError(GroupError):
    """Workers could not form a group: one is missing, unreachable or has other settings."""


class JoinTimeoutError(JoinError, TimeoutError):
    """Workers could not form a group in time."""


def member_error(message: str, hint: str = "", *, rank: int, reason: str) -> MemberError:
    """The error for this reason: a timeout for a member that is stuck."""
    kind = MemberTimeoutError if reason == "stuck" else MemberError
    return kind(message, hint, rank=rank, reason=reason)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: the closest known name, then all of them.

    >>> unknown("model", "lenett", ["mlp", "lenet"])
    "unknown model 'lenett': did you mean 'lenet'? (known: lenet, mlp)"
    """
    names = sorted(known)
    shown = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
    return f"unknown {kind} '{shown}'{did_you_mean(name, names)} (known: {', '.join(names)})"


def sys_exit_error(what: str, error: SystemExit) -> ConfigError:
    """The error for code of the user's own that calls `sys.exit`."""
    return ConfigError(
        f"{what} called sys.exit({error.code!r}), which would end the whole run",
        "Return, or raise an exception that says what is wrong.",
    )
