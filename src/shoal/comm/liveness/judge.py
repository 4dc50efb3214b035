"""Judges a member that keeps this one waiting: dead, stopped, stuck, slow, or worth waiting for.

Each kind of group gathers `Facts` in its own way; this file alone decides what they mean, after how long, and in what
words.

================================================  ==================================
what is known of the member                       verdict
================================================  ==================================
it reported an error, or that it leaves           that error, after a moment
its process has ended                             died, after a moment
it has been stopped (SIGSTOP) for 10 s            stopped
others have waited 2 s for it                     a warning, once
it has been silent for 10 s                       a warning with its Python stack, once
silent for the limit while this one waited,       stuck, unless a debugger holds it
not counting the time it was denied a processor
it waits for a member that does not wait          none: its waiters judge that one
================================================  ==================================

The moment gives the last data of a member that is gone time to arrive, where data travels through connections.

A member that is alive may be at long work of its own (rank 0 evaluates, saves, downloads), so the limit is generous in
a user's program, as torch's is, and shorter in `shoal train`, which announces its long work (`beat(BUSY_S)`).
`limit_of` (`limits.py`) says where it can be set.
"""

import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar, final

from shoal.comm.liveness.limits import SETTINGS
from shoal.errors import GroupError, MemberError, MismatchError, member_error

Member = TypeVar("Member", bound=Hashable)

STOP_GRACE_S = 10.0
"""How long a member may be stopped (SIGSTOP) before the others give it up."""
WARN_AFTER_S = 10.0
"""How long a member may show no progress before the others warn of it, and show its stack."""
SLOW_LINE_EVERY_S = 60.0
"""Seconds between two warnings of slow members."""
SLOW_AFTER_S = 2.0
"""How long a member may keep others waiting before they warn of it."""
SIGN_OF_WAIT_S = 5.0
"""How long it counts that a member has reported that it waits. It reports that again ten times a second."""

DEATH_GRACE_S = 0.08
LEAVE_GRACE_S = 1.0
BREAK_GRACE_S = 0.04
"""The grace period once a connection has broken, or for a member that reported an error."""

STORE_ANSWERS_S = 60.0
"""How long a store on another machine may take to answer: a live store answers, whatever its worker does."""

BROKEN_FOR_S = 1.0
"""How long to look for the member that broke a connection or took the store with it."""


class SlowMemberWarning(UserWarning):
    """A member keeps the others waiting, though it still makes progress."""


class LastWords(NamedTuple):
    """Why a member has ended, as it reported itself: `rank` is the member that caused it."""

    reason: str
    rank: int
    message: str = ""

    @classmethod
    def of(cls, error: BaseException | None, rank: int) -> "LastWords":
        """What member `rank` reports when it ends with this error, or without one.

        >>> LastWords.of(ValueError("no such column"), 3).message
        'rank 3 failed: ValueError: no such column'
        """
        if error is None:
            return cls("left", rank)
        if isinstance(error, MemberError):
            return cls(error.reason, error.rank, error.message)
        if isinstance(error, MismatchError):
            return cls("mismatch", rank, error.message)
        return cls("failed", rank, f"rank {rank} failed: {type(error).__name__}: {error}")

    def error(self, label: str) -> GroupError:
        """The error for those who wait for the member in `label`."""
        if self.reason == "mismatch":
            return MismatchError(self.message)
        if not self.message:
            return member_error(
                f"rank {self.rank} finished earlier, before {label}",
                "The workers made unequal numbers of steps: give all of them the same number, or see join().",
                rank=self.rank,
                reason=self.reason,
            )
        return member_error(self.message, rank=self.rank, reason=self.reason)


REASONS = ("failed", "died", "stopped", "stuck", "left", "mismatch")
"""Every reason of `LastWords`. Shared memory holds the position."""


def cause_of(
    member: Member, judged_by: Member, waits_for: Callable[[Member], Member | None]
) -> Member | None:
    """The member for which another one waits in the end, through members that wait themselves.

    None: it does not wait. The member itself: it waits for the one that judges it. Of a circle that does not lead to
    that one, some member: those in it judge each other.

    >>> server = {"a": "server", "b": None, "server": "b"}.get
    >>> cause_of("server", "a", server), cause_of("b", "server", server), cause_of("a", "server", server)
    ('b', None, 'a')
    """
    passed, at = {member}, member
    while (following := waits_for(at)) is not None and following not in passed:
        if following == judged_by:
            return member
        passed.add(following)
        at = following
    return None if at == member else at


def still_waits(reported_ns: int, progress_ns: int) -> bool:
    """Whether a member waits that has reported so at this time of the monotonic clock, and made progress at that."""
    return reported_ns > max(progress_ns, time.monotonic_ns() - int(1e9 * SIGN_OF_WAIT_S))


class Facts(NamedTuple):
    """What is known of one member that this one waits for."""

    rank: int
    """Its rank in the world."""
    label: str
    """What it has not reached: "all_reduce #5"."""
    waited_s: float
    """How long this member has waited for it without a pause."""
    last_words: LastWords | None = None
    dead: bool = False
    gone_for_s: float = float("inf")
    """How long ago it was first seen gone; without connections on which data may still travel, for ever."""
    connection_broken: bool = False
    stopped_s: float = 0.0
    """How long it has been seen stopped without a break."""
    silent_s: float = 0.0
    """How long it has shown no progress; negative while it is busy with work that it announced."""
    starved_s: float = 0.0
    """How much of that time its process was ready to run and got no processor."""
    in_debugger: Callable[[], bool] = lambda: False
    """Reads whether a debugger holds it. Called once it has been silent for seconds."""
    has_arrived: bool = False
    """Whether it has reached `label` too, and only its data is missing: then it is not slow."""
    waits_for: int | None = None
    """For whom it waits in the end (`cause_of`); None: it does not wait."""
    pid: int = 0
    host: str = ""
    """Its machine, where that is another one."""
    lost: str = ""
    """What was lost with its process."""
    stack: Callable[[], str] = lambda: ""
    """Reads where it is in its program."""

    @property
    def waits(self) -> bool:
        """Whether it waits for others itself."""
        return self.waits_for is not None

    @property
    def is_innocent(self) -> bool:
        """Whether it waits, but not for the member that judges it: they judge each other."""
        return self.waits_for not in (None, self.rank)


def to_blame(members: Sequence[Facts]) -> Facts:
    """The first of these members that does not wait itself, if there is one."""
    return min(members, key=lambda each: (each.waits, each.is_innocent))


def verdict(facts: Facts, limit_s: float) -> GroupError | None:
    """The error for a member that will not come, or None: keep waiting."""
    if facts.last_words is not None or facts.dead:
        if facts.gone_for_s < _grace_s(facts):
            return None
        return facts.last_words.error(facts.label) if facts.last_words else died(facts)
    if facts.stopped_s > 0:
        too_long = facts.stopped_s > min(STOP_GRACE_S, limit_s)
        return stopped(facts.rank, facts.label, facts.pid) if too_long else None
    if facts.is_innocent:
        return None
    # Only silence during the wait counts: before that, all may have been busy with long work.
    silent_s = min(facts.silent_s, facts.waited_s)
    if silent_s - facts.starved_s > limit_s and not facts.in_debugger():
        return _stuck(facts, silent_s)
    return None


def _grace_s(facts: Facts) -> float:
    if facts.connection_broken:
        return BREAK_GRACE_S
    if facts.last_words is None:
        return DEATH_GRACE_S
    return LEAVE_GRACE_S if facts.last_words.reason == "left" else BREAK_GRACE_S


@final
class Judge:
    """Judges all members for one worker, and warns of each slow and of each silent one once.

    Members that are slow at the same time share a line, and the next line follows a minute later or not at all: where
    workers outnumber the cores, all are slow in turn.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._slow: set[int] = set()
        self._last_line = float("-inf")
        """When the last warning of slow members was given."""
        self._silent: set[int] = set()
        """The members that were warned of."""
        self._last_busy: dict[int, float] = {}
        """When a member was last seen busy with announced work, which is no reason for a warning."""

    def stopped_too_long(self, stopped_s: float) -> bool:
        """Whether a process that has been stopped for this long is given up."""
        return stopped_s > min(STOP_GRACE_S, self.limit_s)

    def judge(self, facts: Facts) -> GroupError | None:
        """The error for a member that will not come, or None; warns when it is slow."""
        return self.judge_all([facts])

    def judge_all(self, members: Sequence[Facts], speaks: bool = True) -> GroupError | None:
        """The error for a wait that needs every one of the members: of the first that will not come.

        `speaks`: whether it is this member that warns, where several wait for the same ones.
        """
        error = next((error for facts in members if (error := verdict(facts, self.limit_s))), None)
        if error is None:
            self._note(members, speaks)
        return error

    def judge_idle(self, members: Sequence[Facts]) -> GroupError | None:
        """As `judge` for each, in a wait outside of the group: a member with progress a moment ago is not slow."""
        for each in members:
            error = self.judge(each._replace(has_arrived=each.silent_s < SLOW_AFTER_S))
            if error is not None:
                return error
        return None

    def judge_any(self, members: Sequence[Facts]) -> GroupError | None:
        """The error for a wait that any one of the members can end: one has died or failed, or none will come.

        Members that wait for this one will not come, nor members that wait for a member that will not come. If all
        others wait for one, it is warned of.
        """
        errors: dict[int | None, GroupError | None] = {
            facts.rank: verdict(facts, self.limit_s) for facts in members
        }
        for error in filter(None, errors.values()):
            if not isinstance(error, MemberError) or error.reason in ("died", "failed"):
                return error
        at_work = [facts for facts in members if not facts.waits]
        waiting = [facts for facts in members if facts.waits]
        may_come = [*at_work, *(facts for facts in waiting if facts.is_innocent)]
        if all(errors[facts.rank] or errors.get(facts.waits_for) for facts in may_come):
            return next((error for facts in (*at_work, *waiting) if (error := errors[facts.rank])), None)
        if len(at_work) == 1 and waiting:
            (late,) = at_work
            if all(facts.waits_for in (facts.rank, late.rank) for facts in waiting):
                self._note([late], speaks=True)
        return None

    def _note(self, members: Sequence[Facts], speaks: bool) -> None:
        """Warn of members that are slow or silent."""
        now = self._clock()
        members = [
            each
            for each in members
            if not (each.last_words or each.dead or each.has_arrived or each.is_innocent)
        ]
        self._last_busy |= {each.rank: now for each in members if each.silent_s < 0}
        if not speaks:
            return
        slow = [each for each in members if each.rank not in self._slow and self._is_slow(each, now)]
        if slow and now - self._last_line > SLOW_LINE_EVERY_S:
            self._slow.update(each.rank for each in slow)
            self._last_line = now
            ranks, waited_s = ", ".join(str(each.rank) for each in slow), max(each.waited_s for each in slow)
            who, they = (f"rank {ranks} is", "it") if len(slow) == 1 else (f"ranks {ranks} are", "them")
            _warn(f"{who} slow: others have waited {waited_s:.1f} s for {they} at {slow[0].label}")
        for facts in members:
            self._note_silence(facts)

    def _is_slow(self, facts: Facts, now: float) -> bool:
        not_busy_s = now - self._last_busy.get(facts.rank, float("-inf"))
        return min(facts.waited_s, not_busy_s) > SLOW_AFTER_S

    def _note_silence(self, facts: Facts) -> None:
        silent_s = min(facts.waited_s, facts.silent_s) - facts.starved_s
        if silent_s > WARN_AFTER_S and not (
            facts.stopped_s or facts.rank in self._silent or facts.in_debugger()
        ):
            self._silent.add(facts.rank)
            _warn(
                f"{_silence(facts, silent_s)}. The others wait, at most {self.limit_s:g} s. {SETTINGS}"
                + ("" if facts.host else f"\nIt is here:\n{facts.stack()}")
            )


def speaks(rank: int, members: Iterable[int], missing: Collection[int]) -> bool:
    """Whether a member warns of the missing ones: of the members that have come, the first warns.

    >>> [speaks(rank, range(4), missing=[0, 3]) for rank in (1, 2)]
    [True, False]
    """
    return all(other in missing for other in members if other < rank)


def _warn(text: str) -> None:
    warnings.warn(text, SlowMemberWarning, stacklevel=7)


# The sentences.


def left(rank: int, label: str) -> GroupError:
    """The error for a member that left in good order."""
    return LastWords("left", rank).error(label)


def died(facts: Facts) -> MemberError:
    """The error for a member whose process has ended without a word."""
    return MemberError(
        f"rank {facts.rank} died before {facts.label} (process {facts.pid} has ended{facts.lost})",
        "See its own log, or the launcher's, for the reason.",
        rank=facts.rank,
        reason="died",
    )


def stopped(rank: int, label: str, pid: int) -> MemberError:
    """The error for a member whose process is stopped."""
    return MemberError(
        f"rank {rank} has not reached {label}: it is stopped (SIGSTOP)",
        f"Continue it with: kill -CONT {pid}",
        rank=rank,
        reason="stopped",
    )


def _silence(facts: Facts, silent_s: float) -> str:
    if facts.host:
        return f"rank {facts.rank} on {facts.host} has not reached {facts.label}: silent for {silent_s:.1f} s"
    state = "it waits for others itself, and" if facts.waits else "it is alive, but"
    return (
        f"rank {facts.rank} has not reached {facts.label}: {state} has made no progress for {silent_s:.1f} s"
    )


def _stuck(facts: Facts, silent_s: float) -> MemberError:
    where = (
        f"It is stuck or stopped, or the network to {facts.host} is down."
        if facts.host
        else f"It is here:\n{facts.stack()}"
    )
    hint = f"{SETTINGS}\n{where}"
    return member_error(_silence(facts, silent_s), hint, rank=facts.rank, reason="stuck")


def hung_up(rank: int, label: str, host: str) -> MemberError:
    """The error for a member on another machine that closed its connection for an unknown reason."""
    return MemberError(
        f"rank {rank} on {host} hung up before {label}",
        f"It died or left, or the network to {host} is down: see its own log.",
        rank=rank,
        reason="died",
    )


def store_lost(label: str, why: str, rank: int | None = None, host: str = "") -> GroupError:
    """The error when the store where workers meet is gone; `rank` held it on another machine, if a member did."""
    if rank is None:
        return GroupError(
            f"{label}: the store where workers meet is gone: {why}",
            "The launcher holds it: see the launcher's output first.",
        )
    return MemberError(
        f"rank {rank} on {host} is gone before {label}, and with it the store where workers meet ({why})",
        f"See its own log; or the network to {host} is down.",
        rank=rank,
        reason="died",
    )
