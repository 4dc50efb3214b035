"""Every error a user can meet, in one tree.

::

    ShoalError                 one sentence, the values, the fix
    ├── ConfigError            a setting that cannot be: unknown, of the wrong kind, or at odds with another
    ├── DataError              a data file that is missing, damaged or not what it says
    ├── CheckpointError        a checkpoint that is missing, damaged or of another model
    ├── DivergedError          the loss stopped being a number
    ├── AutogradError          a computation our own engine cannot record or differentiate
    ├── WorkerError            a worker that failed, as its launcher tells it
    └── GroupError             a call that a group of workers cannot carry out
        ├── MemberError        a member died, was stopped, failed, left, or makes no progress
        ├── MismatchError      members called different things
        └── JoinError          workers that could not come together

All of them are things the user can mend, so the command line prints the sentence without a traceback and exits with 2.
"""

from collections.abc import Iterable

from shoal.nearest import did_you_mean


class ShoalError(Exception):
    """An error of ours. `hint` is the fix, printed on a line of its own."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(ShoalError):
    """A setting that cannot be: unknown, of the wrong kind, or at odds with another."""


class DataError(ShoalError):
    """A data file that is missing, damaged or not what it says."""


class CheckpointError(ShoalError):
    """A checkpoint that is missing, damaged or of another model."""


class DivergedError(ShoalError):
    """The loss stopped being a number."""


class AutogradError(ShoalError):
    """A computation our own engine cannot record or differentiate."""


class WorkerError(ShoalError):
    """A worker failed. `traceback` is the worker's own, where the failure was not an error of ours."""

    def __init__(self, message: str, hint: str, exit_code: int, traceback: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code
        self.traceback = traceback


class GroupError(ShoalError):
    """A call that a group of workers cannot carry out."""


class MemberError(GroupError):
    """A member that is gone or stuck: `rank` names it, `reason` is died, stopped, stuck, failed or left."""

    def __init__(self, message: str, hint: str = "", *, rank: int, reason: str) -> None:
        super().__init__(message, hint)
        self.rank = rank
        self.reason = reason


class MismatchError(GroupError):
    """Members that called different things: the message shows every rank's call."""


class JoinError(GroupError):
    """Workers that could not come together: missing, strangers to each other, or at odds."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name nobody knows: the nearest guess, then all that exist.

    >>> unknown("model", "lenett", ["mlp", "lenet"])
    "unknown model 'lenett': did you mean 'lenet'? (known: lenet, mlp)"
    """
    names = sorted(known)
    return f"unknown {kind} '{name}'{did_you_mean(name, names)} (known: {', '.join(names)})"
