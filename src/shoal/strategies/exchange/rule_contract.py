"""The contract of a rule: that of its exchange, and how many attackers it stands; `shoal check rule` runs it."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shoal.errors import ConfigError
from shoal.strategies.exchange.contract import ASTRAY, CHECKS, NUMEL, described
from shoal.strategies.exchange.exam import Broken, Check, Subject, Verdict, examined, hard_rows
from shoal.strategies.exchange.rules import Robust

ATTACKS = {
    "NaN": lambda good: torch.full_like(good, math.nan),
    "infinity": lambda good: torch.full_like(good, math.inf),
    "1e30": lambda good: torch.full_like(good, 1e30),
    "−1e6 × the mean": lambda good: -1e6 * good,
}
"""What all attackers of a trial send, of the mean of the others."""


def examine_rule(subject: Subject) -> Iterator[Verdict]:
    """Check the contract of exchanges and the clause below, in order, on an exchange that applies a rule."""
    return examined({**CHECKS, **CLAUSES}, subject, described)


def stands(robust: Robust, rows: Tensor, attack: str) -> int:
    """How many of the workers may attack in this way, first or last in the order, before the result goes astray."""
    size = len(rows)
    for attackers in range(1, (size + 1) // 2):
        for first in (0, size - attackers):
            good = torch.cat([rows[:first], rows[first + attackers :]])
            sent = rows.clone()
            sent[first : first + attackers] = ATTACKS[attack](good.mean(0))
            try:
                length = robust.rule(sent, robust.bad).double().norm()
            except ConfigError:  # its result is not finite
                return attackers - 1
            if not length <= ASTRAY * size * good.double().norm(dim=1).max():
                return attackers - 1
    return (size - 1) // 2


def _breakdown(subject: Subject, rows: Tensor) -> str:
    robust = subject.make(len(rows))
    assert isinstance(robust, Robust)
    found = {attack: stands(robust, rows, attack) for attack in ATTACKS}
    fewest = min(found, key=lambda attack: found[attack])
    if found[fewest] < robust.bad:
        raise Broken(
            f"only {found[fewest]} of {len(rows)} workers may send {fewest}, but --exchange.bad is {robust.bad}: "
            "more of them move the result without a limit"
        )
    each = ", ".join(f"{attack}: {number}" for attack, number in found.items())
    return f"{found[fewest]} of {len(rows)} workers may attack ({each})"


def _largest_size(subject: Subject) -> list[Tensor]:
    return [hard_rows(subject.sizes[-1], NUMEL, torch.float32)]


CLAUSES = {
    "breakdown": Check("as many workers as --exchange.bad may send anything", _breakdown, _largest_size),
}
