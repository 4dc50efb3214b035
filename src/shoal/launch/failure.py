"""How a worker failed: told by the worker itself, chosen by its launcher, raised as one error."""

import signal
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import shoal
from shoal.errors import MemberError, ShoalError, WorkerError

LAST_WORDS = 12
"""Lines of a worker's output shown when it could not say itself what happened."""


@dataclass(frozen=True)
class Failure:
    """What a worker says of its own end."""

    name: str
    """The exception's."""
    message: str
    hint: str
    expected: bool
    """An error of ours, which needs no traceback."""
    blames: int | None
    """The rank that this worker says is to blame, if it is another."""
    reason: str
    """For a blamed rank: died, stopped, stuck, failed or left."""
    where: str
    """file:line, in the user's code where it was there."""
    traceback: str
    exit_code: int


def failure_of(error: BaseException) -> Failure:
    """What there is to say of an exception, while its traceback is still there."""
    ours = isinstance(error, ShoalError)
    member = error if isinstance(error, MemberError) else None
    return Failure(
        name=type(error).__name__,
        message=error.message if ours else str(error),
        hint=error.hint if ours else "",
        expected=ours,
        blames=member.rank if member else None,
        reason=member.reason if member else "",
        where=_where(traceback.extract_tb(error.__traceback__)),
        traceback="".join(traceback.format_exception(error)),
        exit_code=_exit_code(error),
    )


def told_by_worker(rank: int, size: int, failure: Failure, more: Sequence[str] = ()) -> WorkerError:
    """The error for a failure that a worker could still tell; `more` are further lines of the hint."""
    hint = failure.hint
    if failure.blames is not None:
        if failure.reason == "stopped":
            hint = "The workers have been ended, the stopped one too."  # too late to continue it
        message = failure.message
        lines = [hint, f"Seen by rank {rank} of {size}."]
    elif failure.expected:
        message, lines = f"rank {rank} of {size}: {failure.message}", [hint]
    else:
        what = f"{failure.name}: {failure.message}" if failure.message else failure.name
        message, lines = f"rank {rank} of {size} failed: {what}", [f"at {failure.where}"]
    shown = "" if failure.expected else failure.traceback
    return WorkerError(message, _joined([*lines, *more]), failure.exit_code, shown)


def told_by_its_end(
    rank: int, size: int, code: int, last_words: str, more: Sequence[str] = ()
) -> WorkerError:
    """The error for a worker that ended without a word: `code` as `subprocess` gives it, below 0 for a signal."""
    words = _excerpt(last_words)
    said = f"Its last words:\n{words}" if words else ""
    if code >= 0:
        message = f"rank {rank} of {size} ended by itself, with exit code {code}, before its work was done"
        return WorkerError(message, _joined([said, *more]), code or 1)
    number = -code
    why = _SIGNAL_REASONS.get(number, "") if not words else ""
    message = f"rank {rank} of {size} was killed by {signal.Signals(number).name}"
    return WorkerError(message, _joined([why, said, *more]), 128 + number)


_SIGNAL_REASONS: dict[int, str] = {
    signal.SIGKILL: "Somebody sent it; the system does when memory runs out (`dmesg` then says so).",
    signal.SIGSEGV: "Native code touched memory that is not its own.",
    signal.SIGABRT: "Native code gave up.",
}


def _excerpt(output: str) -> str:
    """The end of what a worker printed; of a crash in native code its beginning, where the place is."""
    _, fatal, dump = output.rpartition("Fatal Python error")
    lines = (fatal + dump).strip().splitlines()
    lines = lines[:LAST_WORDS] if fatal else lines[-LAST_WORDS:]
    return "\n".join(f"  {line}" for line in lines if line)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line for line in lines if line)


def _exit_code(error: BaseException) -> int:
    """What the process would have ended with, had nobody caught the exception."""
    if isinstance(error, ShoalError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 1


def _where(frames: traceback.StackSummary) -> str:
    """The innermost place in the user's own code; in ours, where the user has none; in a library's at last."""
    ours = str(Path(shoal.__file__).parent)
    libraries = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "<frozen")
    theirs = [frame for frame in frames if not frame.filename.startswith(libraries)]
    users = [frame for frame in theirs if not frame.filename.startswith(ours)]
    chosen = (users or theirs or list(frames))[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else "an unknown place"
