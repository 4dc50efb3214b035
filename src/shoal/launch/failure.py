"""How a worker failed: as it reports it itself, or as its end shows, in one error."""

import signal
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import shoal
from shoal.errors import ConfigError, MemberError, ShoalError, WorkerError
from shoal.printable import excerpt

OUTPUT_LINES = 12
"""Lines of a worker's output shown if it ended without a report."""


@dataclass(frozen=True)
class Failure:
    """A worker's report of its own failure."""

    name: str
    """The type of the exception."""
    message: str
    hint: str
    expected: bool
    """Whether it is a ShoalError, which needs no traceback."""
    blames: int | None
    """The other rank that caused the failure, if this worker knows one."""
    reason: str
    """What happened to that rank: died, stopped, stuck, failed or left."""
    where: str
    """file:line, in the user's code if the traceback passes through it."""
    traceback: str
    exit_code: int


def failure_of(error: BaseException) -> Failure:
    """Describe an exception, while its traceback is still there; very long texts in part, as a terminal shows them."""
    ours = isinstance(error, ShoalError)
    member = error if isinstance(error, MemberError) else None
    return Failure(
        name=type(error).__name__,
        message=excerpt(error.message if ours else str(error)),
        hint=excerpt(error.hint if ours else ""),
        expected=ours,
        blames=member.rank if member else None,
        reason=member.reason if member else "",
        where=_where(traceback.extract_tb(error.__traceback__)),
        traceback=excerpt("".join(traceback.format_exception(error))),
        exit_code=_exit_code(error),
    )


def reported_failure(rank: int, size: int, failure: Failure, more: Sequence[str] = ()) -> WorkerError:
    """The error for a failure that the worker reported; `more` are further lines of the hint."""
    hint = failure.hint
    if failure.blames is not None:
        if failure.reason == "stopped":
            hint = "All workers have been ended, the stopped one too."  # it can no longer be continued
        message = failure.message
        lines = [hint, f"Seen by rank {rank} of {size}."]
    elif failure.expected:
        message, lines = f"rank {rank} of {size}: {failure.message}", [hint]
    else:
        what = f"{failure.name}: {failure.message}" if failure.message else failure.name
        message, lines = f"rank {rank} of {size} failed: {what}", [f"at {failure.where}"]
    shown = "" if failure.expected else failure.traceback
    refusal = failure.message if failure.name == ConfigError.__name__ else ""
    return WorkerError(message, _joined([*lines, *more]), failure.exit_code, shown, refusal)


def unreported_end(rank: int, size: int, code: int, output: str, more: Sequence[str] = ()) -> WorkerError:
    """The error for a worker that ended without a report: `code` as `subprocess` gives it, below 0 for a signal."""
    excerpt = _excerpt(output)
    lines = [f"The last lines of its output:\n{excerpt}" if excerpt else "", *more]
    if code >= 0:
        message = f"rank {rank} of {size} exited with code {code} before its work was done"
        return WorkerError(message, _joined(lines), code or 1)
    message = f"rank {rank} of {size} was killed by {signal.Signals(-code).name}"
    reason = "" if excerpt else _SIGNAL_REASONS.get(-code, "")
    return WorkerError(message, _joined([reason, *lines]), 128 - code)


_SIGNAL_REASONS: dict[int, str] = {
    signal.SIGKILL: "Possibly the out-of-memory killer: check `dmesg`.",
    signal.SIGSEGV: "A crash in native code: invalid memory access.",
    signal.SIGABRT: "Native code aborted.",
}


def _excerpt(output: str) -> str:
    """The last lines of the output; of a crash in native code the first ones, which show where it was."""
    _, fatal, dump = output.rpartition("Fatal Python error")
    lines = [
        line for line in (fatal + dump).strip().splitlines() if not line.startswith("Extension modules:")
    ]
    lines = lines[:OUTPUT_LINES] if fatal else lines[-OUTPUT_LINES:]
    return excerpt("\n".join(f"  {line}" for line in lines if line))


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line for line in lines if line)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, ShoalError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 1


_LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "<frozen")


def users_frames(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The frames in the user's own code."""
    ours = (str(Path(shoal.__file__).parent), *_LIBRARIES, "<string>")
    return [frame for frame in frames if not frame.filename.startswith(ours)]


def _where(frames: traceback.StackSummary) -> str:
    """The innermost line of the user's code; else of ours; else of a library."""
    theirs = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    chosen = (users_frames(frames) or theirs or list(frames))[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else "an unknown line"
