"""Who keeps workers waiting: decided from where each of them stands, by a pure function.

Asked in this order, of every call in which a worker waits:

1. Do the members call different things as this collective? No later call can be right.
2. Has a member finished, failed or ended without this call? It will not come.
3. Is a member not in a call at all? It is the one that is missing.
4. Otherwise they wait for each other.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from shoal.launch.hangs.calls import Call, odd_ones
from shoal.launch.hangs.standing import Standing

GONE = ("finished", "failed", "ended")
Kind = Literal["mismatch", "gone", "missing", "circle"]


class Verdict(NamedTuple):
    """Why workers cannot go on."""

    kind: Kind
    sentence: str
    hint: str
    guilty: tuple[int, ...]
    """The ranks that the others wait for, or whose call differs from most; empty where nobody can tell."""


def judge(standings: Sequence[Standing]) -> Verdict | None:
    """Why workers cannot go on; None if none of them waits in a call of torch's groups."""
    waiting = [each for each in standings if each.call is not None and each.state != "finished"]
    for rule in (_mismatch, _gone, _missing, _circle):
        for one in waiting:
            verdict = rule(one, standings)
            if verdict is not None:
                return verdict
    return None


def ranks_in_words(ranks: Iterable[int], verb: str = "", verbs: str = "") -> str:
    """Ranks as a subject, with the verb for one or for several.

    >>> ranks_in_words([2]), ranks_in_words([0, 2, 3, 4], "waits", "wait")
    ('rank 2', 'ranks 0, 2-4 wait')
    """
    ordered, parts = sorted(ranks), list[str]()
    while ordered:
        count = next(
            (index for index, rank in enumerate(ordered) if rank != ordered[0] + index), len(ordered)
        )
        first, last = ordered[0], ordered[count - 1]
        parts += [f"{first}-{last}"] if count > 2 else map(str, ordered[:count])
        ordered = ordered[count:]
    one = len(parts) == 1 and parts[0].isdigit()
    words = f"{'rank' if one else 'ranks'} {', '.join(parts)} {verb if one else verbs or verb}"
    return words.rstrip()


def waits_for(one: Standing, standings: Sequence[Standing]) -> list[Standing]:
    """The members that have not made the call in which this one waits."""
    call, size = one.call, len(standings)
    if call is None:
        return []
    if call.is_message:
        partner = call.partner()
        other = standings[partner] if 0 <= partner < size else None
        return [] if other is None or _answers(other, one) else [other]
    members = [standings[rank] for rank in call.members(size) if rank != one.rank and rank < size]
    return [each for each in members if each.last(call.key) < call.number]


def _answers(other: Standing, one: Standing) -> bool:
    """Whether another worker is at the other end of the message of this one."""
    theirs, call = other.call, one.call
    return (
        theirs is not None
        and call is not None
        and theirs.is_message
        and theirs.operation != call.operation
        and theirs.partner() in (one.rank, -1)
    )


def _mismatch(one: Standing, standings: Sequence[Standing]) -> Verdict | None:
    call = one.call
    if call is None or call.is_message:
        return None
    made = {each.rank: found for each in standings if (found := each.made(call.key, call.number))}
    ranks, calls = list(made), list(made.values())
    if all(each.agrees(call) for each in calls):
        return None
    odd = [ranks[place] for place in odd_ones(calls)]
    what = f"collective #{call.number} of {call.group}"
    others = [rank for rank in ranks if rank not in odd]
    if odd:
        sentence = f"{ranks_in_words(odd, 'calls', 'call')} {_bare(made[odd[0]])} as {what}"
        sentence += f", where {ranks_in_words(others, 'calls', 'call')} {_bare(made[others[0]])}"
    else:
        each = ", ".join(f"rank {rank} {_bare(made[rank])}" for rank in sorted(made))
        sentence = f"the ranks call different things as {what}: {each}"
    hint = "Every rank must make the same calls in the same order, with tensors of the same shape and type."
    return Verdict("mismatch", sentence, hint, tuple(odd))


def _bare(call: Call) -> str:
    """A collective without its number.

    >>> _bare(Call("0", "world", 1, "broadcast", "int64[2]", 16, 1))
    'broadcast(int64[2], root 1)'
    """
    root = [f"root {call.partner()}"] if call.peer >= 0 else []
    return f"{call.operation}({', '.join([*filter(None, [call.shape]), *root])})"


def _gone(one: Standing, standings: Sequence[Standing]) -> Verdict | None:
    gone = [each for each in waits_for(one, standings) if each.state in GONE and each.call is None]
    if not gone:
        return None
    first = gone[0]
    alike = [each.rank for each in gone if each.state == first.state]
    done = "has finished" if len(alike) == 1 else "have finished"
    what = done if first.state == "finished" else first.remark or "has ended"
    sentence = f"{ranks_in_words(alike)} {what} without {_without(one.call)}, for which rank {one.rank} waits"
    hint = "Every member of a group must make the call: look for a return, an exception or unequal numbers of steps."
    return Verdict("gone", sentence, hint, tuple(alike))


def _waiters(one: Standing, standings: Sequence[Standing]) -> str:
    same = [each.rank for each in standings if each.call == one.call and each.call is not None]
    return ranks_in_words([one.rank] if one.call and one.call.is_message else same, "waits", "wait")


def _without(call: Call | None) -> str:
    if call is None or not call.is_message:
        return str(call)
    return f"the {'recv' if call.operation == 'send' else 'send'} of {call}"


def _missing(one: Standing, standings: Sequence[Standing]) -> Verdict | None:
    missing = [each for each in waits_for(one, standings) if each.call is None and each.state not in GONE]
    if not missing or one.call is None:
        return None
    first = missing[0]
    place = first.place()
    at = f": it is at {place.path.rpartition('/')[2]}:{place.line}" if place else ""
    at += f" in {place.function}" if place and place.function != "<module>" else ""
    silent = ": it does not answer" if first.state == "silent" else ""
    ranks = tuple(each.rank for each in missing)
    if one.call.is_message:
        answer = "recv" if one.call.operation == "send" else "send"
        sentence = f"rank {first.rank} has not called {answer}, for which rank {one.rank} waits in {one.call}"
        sentence += at or silent
        hint = "Each send needs a recv on the other side, in the same order."
        return Verdict("missing", sentence, hint, ranks)
    have = ranks_in_words(ranks, "has", "have")
    sentence = f"{have} not reached {one.call}, for which {_waiters(one, standings)}{at or silent}"
    hint = "Every member of a group must make the call, on every path through the program."
    return Verdict("missing", sentence, hint, ranks)


def _circle(one: Standing, standings: Sequence[Standing]) -> Verdict | None:
    missing = waits_for(one, standings)
    if not missing:
        if one.state != "waits" or one.call is None or one.call.is_message:
            return None
        sentence = f"{one.call} does not end, though all of its members have called it"
        return Verdict("circle", sentence, "Look at the network, or for a member that was stopped.", ())
    other = missing[0]
    sentence = f"rank {other.rank} has not reached {one.call}, for which rank {one.rank} waits: "
    sentence += f"it waits in {other.call}"
    elsewhere = _elsewhere(one, other)
    if elsewhere is not None:
        sentence += f", after {elsewhere.operation} #{elsewhere.number} of {elsewhere.group}"
    elif one in waits_for(other, standings):
        sentence += f", which rank {one.rank} has not reached"
    guilty = () if elsewhere is None else (other.rank,)
    hint = "All members of a group make its calls, and where groups overlap, in the same order."
    return Verdict("circle", sentence, hint, guilty)


def _elsewhere(one: Standing, other: Standing) -> Call | None:
    """The call that a worker has made in another group, as if it had taken that for the group where it is missed."""
    call = one.call
    if call is None or call.is_message:
        return None
    alike = [
        each
        for each in other.calls.values()
        if each.key != call.key and each.agrees(call) and each.members(0) != call.members(0)
    ]
    return max(alike, key=lambda each: each.number, default=None)
