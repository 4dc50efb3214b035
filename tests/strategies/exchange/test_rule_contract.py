"""The contract of rules: how many attackers each of ours stands, and what rules that are wrong on purpose fail."""

import sys

import pytest
import torch

from shoal.cli.main import main
from shoal.config.sections.exchange import RobustConfig
from shoal.strategies.exchange.exam import hard_rows, subject_of
from shoal.strategies.exchange.rule_contract import ATTACKS, examine_rule, stands
from shoal.strategies.exchange.rules import Robust, rule_of

RULES = """
def mean(rows, bad):
    return rows.mean(0)

def without_nan(rows, bad):
    return rows[rows.isfinite().all(1)].mean(0)

def first(rows, bad):
    return rows[0]

def total(rows, bad):
    return rows.sum(0)

def nothing(rows, bad):
    return None

def wide(rows, bad):
    return rows.double().mean(0)

def short(rows, bad):
    return rows.mean(0)[:1]

def raising(rows, bad):
    raise ValueError("no mean today")
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_rules", None)


def failed(rule, bad, workers=3):
    subject = subject_of(RobustConfig(rule=rule, bad=bad), workers)
    return {verdict.name: verdict.problem for verdict in examine_rule(subject) if verdict.problem}


@pytest.mark.parametrize(
    ("rule", "bad", "attackers"),
    [
        ("median", 1, [3, 3, 3, 3]),
        ("trimmed_mean", 2, [2, 2, 2, 2]),
        ("krum", 2, [2, 2, 3, 3]),
        ("own_rules:mean", 0, [0, 0, 0, 0]),
        ("own_rules:without_nan", 1, [3, 3, 0, 0]),
    ],
)
def test_how_many_attackers_a_rule_stands(rule, bad, attackers):
    rows = hard_rows(7, 50, torch.float32)
    robust = Robust(rule_of(rule), bad)
    assert [stands(robust, rows, attack) for attack in ATTACKS] == attackers


@pytest.mark.parametrize(
    ("rule", "bad", "clause", "said"),
    [
        ("mean", 1, "tolerates", "though 1 of 3 rows have one and --exchange.bad is 1"),
        ("without_nan", 1, "breakdown", "only 0 of 3 workers may send 1e30"),
        ("first", 0, "no preferred rank", "in another order"),
        ("total", 0, "stands for the sum", "when all workers send the same"),
        ("nothing", 0, "returns", "returned a value of type NoneType"),
        ("wide", 0, "returns", "elements in torch.float64, expected"),
        ("short", 0, "returns", "returned 1 elements in torch.float32, expected 257"),
        ("raising", 0, "returns", "ValueError: no mean today (at "),
    ],
)
def test_a_wrong_rule_fails_the_clause_that_it_breaks(rule, bad, clause, said):
    assert said in failed(f"own_rules:{rule}", bad)[clause]


def test_a_rule_that_claims_nothing_keeps_it():
    assert failed("own_rules:mean", 0) == {}


def test_a_rule_may_return_nan_where_more_rows_are_bad_than_it_tolerates():
    rows = torch.ones(3, 4)
    rows[0] = torch.nan
    assert rule_of("own_rules:mean")(rows, 0).isnan().all()


def test_the_command_names_its_own_flag_for_more_workers(capsys):
    assert main(["check", "rule", "krum", "--exchange.bad", "3"]) == 2
    assert "  Use --workers 9, or set --exchange.bad 2" in capsys.readouterr().err
