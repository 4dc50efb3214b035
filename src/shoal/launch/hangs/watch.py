"""The launcher's side: it looks for workers that wait in calls of torch's groups, and asks all where they are."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, final

import shoal
from shoal.comm.liveness.limits import NO_PROGRESS_LIMIT_S, PAUSED_S, SETTINGS
from shoal.errors import MismatchError, WorkerError
from shoal.launch.failure import Failure
from shoal.launch.hangs.board import Board
from shoal.launch.hangs.calls import MEETING, Call
from shoal.launch.hangs.judge import Kind, Verdict, judge
from shoal.launch.hangs.picture import picture, stacks
from shoal.launch.hangs.standing import Place, Standing

LOOK_EVERY_S = 0.25
ANSWER_S = 2.0
"""How long workers may take to say where they are."""
GONE_AFTER_S = 2.0
"""How long a worker waits for one that has ended: a group whose connection breaks says so before."""
LONGEST_REMARK = 70
PACKAGE = str(Path(shoal.__file__).parent)
MARKS: dict[Kind, str] = {
    "mismatch": "another call",
    "gone": "gone",
    "missing": "missing",
    "circle": "elsewhere",
}


class Watchable(Protocol):
    """What a watch knows of a started worker."""

    rank: int
    finished: bool
    failure: Failure | None
    answer: dict[str, Any] | None
    """Its last answer to where it is."""
    waited: Call | None
    """The call of a torch group whose wait raised the error with which it failed."""
    made: Sequence[Call]
    """Its last calls, as it reported them when it failed."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        ...

    def stack(self) -> Sequence[Place]:
        """Where it is, if it shares our memory."""
        ...


@final
class Watch:
    """All workers of a launch. Without a board nothing is looked for; workers that share our memory are still drawn."""

    def __init__(self, board: Board | None = None, limit_s: float = NO_PROGRESS_LIMIT_S) -> None:
        self._board, self._limit_s = board, limit_s
        self._last_look = self._since = time.monotonic()
        """When the launcher last looked, and since when it has looked without a pause (Ctrl-Z)."""
        self._asked_at: float | None = None
        self._not_before = 0.0
        """When workers may be asked again."""

    def ask(self, handles: Sequence[Watchable]) -> None:
        """Ask all workers that run where they are."""
        self._asked_at = time.monotonic()
        for handle in handles:
            if self._board is not None and handle.poll() is None:
                self._board.ask(handle.rank)

    def look(self, handles: Sequence[Watchable]) -> WorkerError | None:
        """The error for workers that wait without end; None while that is not certain."""
        now = time.monotonic()
        if self._board is None or now - self._last_look < LOOK_EVERY_S:
            return None
        if now - self._last_look > PAUSED_S:
            self._since, self._asked_at = now, None
        self._last_look = now
        if self._asked_at is None:
            if self._is_suspicious(handles, now):
                self.ask(handles)
            return None
        if now - self._asked_at < ANSWER_S and not all(map(self._has_answered, handles)):
            return None
        self._asked_at, self._not_before = None, now + self._limit_s / 4
        standings = self.standings(handles)
        verdict = judge(standings)
        waited_s = max((min(each.waited_s, now - self._since) for each in standings), default=0.0)
        limit_s = self._limit_s
        if limit_s >= NO_PROGRESS_LIMIT_S:  # the default: torch's own limit may be longer
            limit_s = max([limit_s, *(each.answer["timeout_s"] for each in handles if each.answer)])
        if verdict is not None and (verdict.kind == "gone" or waited_s > limit_s):
            why = "" if verdict.kind == "gone" else f"No progress for {waited_s:.0f} s. {SETTINGS}"
            return _error_of(verdict, standings, why)
        return None

    def _is_suspicious(self, handles: Sequence[Watchable], now: float) -> bool:
        """Whether one has waited for the limit, or for a worker that has ended."""
        board = self._board
        if board is None:
            return False
        longest_s = waited_s = 0.0
        for handle in handles:
            since_ns = board.waits_since_ns(handle.rank)
            # C++ waits without a note: then nothing else changes.
            last_ns = since_ns or board.changed_ns(handle.rank)
            if last_ns and not handle.finished and handle.poll() is None:
                silent_s = now - max(self._since, last_ns / 1e9)
                longest_s, waited_s = max(longest_s, silent_s), max(waited_s, silent_s * (since_ns > 0))
        if longest_s > self._limit_s:
            return now > self._not_before
        if waited_s > GONE_AFTER_S and any(each.finished and each.poll() is not None for each in handles):
            verdict = judge(self.standings(handles))
            return verdict is not None and verdict.kind == "gone"
        return False

    def _has_answered(self, handle: Watchable) -> bool:
        if self._board is None or handle.poll() is not None:
            return True
        return handle.answer is not None and handle.answer["asked"] == self._board.num_asked(handle.rank)

    def standings(self, handles: Sequence[Watchable]) -> list[Standing]:
        """Where all workers stand."""
        return [self._standing(handle) for handle in handles]

    def _standing(self, handle: Watchable) -> Standing:
        board, code, failure = self._board, handle.poll(), handle.failure
        noted = board.calls(handle.rank) if board else []
        made = {(call.key, call.number): call for call in noted}
        waits = board.waits_in(handle.rank) if board else None
        one = Standing(handle.rank, "runs", calls=made, stack=handle.stack())
        if handle.finished:
            one.state = "finished"
        elif failure is not None:
            one.state, one.call = "failed", handle.waited
            path, _, line = failure.where.rpartition(":")
            is_users = line.isdigit() and not path.startswith(PACKAGE)
            one.stack = [Place(path, int(line), "<module>", "", True)] if is_users else []
            one.calls = {(call.key, call.number): call for call in handle.made} | made
            one.remark = f"failed: {failure.name}: {failure.message}".partition("\n")[0][:LONGEST_REMARK]
            if one.call is not None:
                one.remark = "stopped before" if failure.name == MismatchError.__name__ else "waited in"
            elif failure.blames is not None:
                one.remark = f"gave up on rank {failure.blames}"
        elif code is not None:
            one.state, one.call = "ended", waits
            one.remark = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            )
            one.remark += " in" if waits else ""
        elif self._has_answered(handle) and (answer := handle.answer):
            recorded = [Call(*call) for call in answer["calls"]]
            one.calls = {(call.key, call.number): call for call in recorded} | made
            one.stack = [Place(*place) for place in answer["stack"]]
            one.call = waits or (Call(*answer["waits"]) if answer["waits"] else None)
            one.waited_s = answer["age_s"]
            if one.call is not None and one.call.key == MEETING and board is not None:
                one.waited_s = (time.monotonic_ns() - board.changed_ns(handle.rank)) / 1e9
        elif board is not None:
            one.state, one.call = "silent", waits
        if board is not None and waits is not None and one.state in ("runs", "silent"):
            one.waited_s = (time.monotonic_ns() - board.waits_since_ns(handle.rank)) / 1e9
        if one.state == "runs" and one.call is not None:
            one.state = "waits"
        return one


def concerns_others(handle: Watchable) -> bool:
    """Whether a failure has its cause in other workers, or in how a call fits theirs."""
    failure = handle.failure
    if failure is None:
        return handle.poll() == -signal.SIGABRT  # gloo aborts where sizes differ
    return handle.waited is not None or failure.blames is not None or failure.name == MismatchError.__name__


def explained(error: WorkerError, blames: int | None, standings: Sequence[Standing]) -> WorkerError:
    """The error of a worker that waited for others, or called something else: with the cause first, and the picture."""
    if blames is not None:
        rows = picture(standings, [blames], "blamed")
        return WorkerError(error.message, "\n".join([error.hint, "", *rows]), error.exit_code)
    verdict = judge(standings)
    return error if verdict is None else _error_of(verdict, standings)


def _error_of(verdict: Verdict, standings: Sequence[Standing], why: str = "") -> WorkerError:
    rows = picture(standings, verdict.guilty, MARKS[verdict.kind])
    shown = stacks(standings, verdict.guilty)
    lines = [verdict.hint, *filter(None, [why]), "", *rows, *([""] if shown else []), *shown]
    return WorkerError(verdict.sentence, "\n".join(lines), WorkerError.exit_code)
