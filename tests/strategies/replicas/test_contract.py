"""The contract of strategies: the examples keep it, and wrong ones are found by the clause that they break."""

import re
import sys
from pathlib import Path

import pytest
import torch

from shoal.cli.main import main
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.contract import StrategySubject, examine_strategy, shares_of
from shoal.strategies.replicas.user_sync import ReplicaSync

ROOT = Path(__file__).parents[3]


def broken_clauses(make, sizes=(2,), is_exact=True):
    subject = StrategySubject(make, sizes, is_exact, limit_s=60)
    return {verdict.name: verdict.problem for verdict in examine_strategy(subject) if verdict.problem}


def test_the_base_class_of_users_strategies_keeps_it():
    """`tests/contracts/test_strategy.py` examines our strategies."""
    assert broken_clauses(ReplicaSync, sizes=(1, 2, 3)) == {}


class Mean(ReplicaSync):
    """The mean where the sum is meant."""

    def combine(self, gradients, part):
        super().combine(gradients, part)
        for gradient in gradients.values():
            gradient /= self.group.size


class MeanOfMeans(ReplicaSync):
    """Right for equal shares only."""

    def combine(self, gradients, part):
        for gradient in gradients.values():
            gradient /= (part or 1.0) * self.group.size
        super().combine(gradients, part)


class Alone(ReplicaSync):
    """Workers that do not agree at all."""

    is_exact = False

    def combine(self, gradients, part):
        pass


class Forgets(ReplicaSync):
    """Momentum of its own that is not saved."""

    is_exact = False

    def __init__(self, parts):
        super().__init__(parts)
        self._last = {}

    def combine(self, gradients, part):
        super().combine(gradients, part)
        for name, gradient in gradients.items():
            gradient += 0.5 * self._last.get(name, 0.0)
            self._last[name] = gradient.clone()


class Keeps(Forgets):
    """The same, saved."""

    def pieces(self):
        return [*super().pieces(), *(Piece.whole(f"keeps.{name}", each) for name, each in self._last.items())]

    def load(self, saved):
        super().load(saved)
        self._last = {name[6:]: saved[name].clone() for name in saved if name.startswith("keeps.")}


class Explodes(ReplicaSync):
    """Divides by the share, which may be empty."""

    is_exact = False

    def combine(self, gradients, part):
        for gradient in gradients.values():
            gradient /= part
        super().combine(gradients, part)


class Hangs(ReplicaSync):
    """Rank 0 waits for a message that nothing sends."""

    def combine(self, gradients, part):
        if self.group.rank == 0 and self.group.size > 1:
            self.group.recv(torch.empty(1), 1).wait()
        super().combine(gradients, part)


@pytest.mark.parametrize(
    ("make", "clause", "problem"),
    [
        (Mean, "one machine", "2 workers: 'model.0.weight' differs from one machine's by .* even shares"),
        (MeanOfMeans, "one machine", "differs from one machine's by .* uneven shares"),
        (Alone, "one model", "rank 1 evaluates other weights than rank 0: 'model."),
        (Forgets, "resume", "is not what it is without the stop after step 1"),
        (Explodes, "trains", "2 workers: rank .* gradient is nan(.|\n)*\nNo further check was made"),
    ],
)
def test_a_wrong_one_is_found_by_the_clause_that_it_breaks(make, clause, problem):
    found = broken_clauses(make, is_exact=make.is_exact)
    assert next(iter(found)) == clause
    assert re.search(problem, found[clause])


def test_state_that_is_saved_passes():
    assert broken_clauses(Keeps, is_exact=False) == {}


def test_one_that_hangs_ends_the_examination():
    subject = StrategySubject(Hangs, (2,), limit_s=1.0)
    (verdict,) = examine_strategy(subject)
    assert "No further check was made" in verdict.problem


def test_shares_cover_a_batch():
    assert all(sum(shares) == 12 for size in range(1, 13) for shares in shares_of(size).values())


@pytest.fixture
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    yield
    sys.modules.pop("examples.my_strategy", None)


@pytest.mark.usefixtures("in_the_repository")
@pytest.mark.parametrize("words", ["SignVote", "Gossip --strategy.neighbours 2 --workers 4"])
def test_the_examples_keep_it(capsys, words):
    name, *flags = words.split()
    assert main(["check", "strategy", f"examples.my_strategy:{name}", *flags]) == 0
    shown = capsys.readouterr().out
    assert "an algorithm of its own" in shown
    assert "all 3 passed" in shown
