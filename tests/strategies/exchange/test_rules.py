"""Rules against their plain definitions in numpy, over drawn data; and what bad rows can do to them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.strategies.exchange import rules
from shoal.strategies.exchange.rules import ROBUST, SPARE, check_bound

NUMBERS = st.floats(-1e6, 1e6, width=32)
BAD_ROWS = st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, 0.0])


def plain_krum(rows, bad):
    """As the paper writes it: the sum of squared distances to the W − bad − 2 nearest others, and the smallest wins."""
    scores = []
    for row in rows:
        distances = sorted(float(((row - other) ** 2).sum()) for other in rows if other is not row)
        scores.append(sum(distances[: len(rows) - bad - 2]))
    return scores


PLAIN = {
    "median": lambda rows, bad: np.median(rows, axis=0),
    "trimmed_mean": lambda rows, bad: np.sort(rows, axis=0)[bad : len(rows) - bad].mean(axis=0),
    "krum": lambda rows, bad: rows[int(np.argmin(plain_krum(list(rows), bad)))],
}


@st.composite
def drawn(draw, rule):
    """Rows, and how many of them may be bad: any number that the rule tolerates."""
    size = draw(st.integers(SPARE[rule], 8))
    bad = draw(st.integers(0, (size - SPARE[rule]) // 2))
    numel = draw(st.integers(0 if rule != "krum" else 1, 5))
    row = st.lists(NUMBERS, min_size=numel, max_size=numel)
    rows = np.array(draw(st.lists(row, min_size=size, max_size=size)), dtype=np.float64).reshape(size, numel)
    return rows, bad


@pytest.mark.parametrize("rule", ROBUST)
@given(data=st.data())
def test_equals_its_plain_definition(rule, data):
    rows, bad = data.draw(drawn(rule))
    result = ROBUST[rule](torch.from_numpy(rows), bad).numpy()
    if rule == "krum":
        # Of rows that tie, or tie but for rounding, either may be taken.
        scores = np.array(plain_krum(list(rows), bad))
        best = rows[scores <= scores.min() * (1 + 1e-9)]
        assert (best == result).all(axis=1).any()
    else:
        np.testing.assert_allclose(result, PLAIN[rule](rows, bad), rtol=1e-12)


@pytest.mark.parametrize("rule", ROBUST)
@given(data=st.data())
def test_whatever_bad_rows_hold_the_result_stays_among_the_good_ones(rule, data):
    rows, bad = data.draw(drawn(rule))
    places = data.draw(st.permutations(range(len(rows))))[:bad]
    for place in places:
        rows[place] = data.draw(BAD_ROWS)
    good = np.delete(rows, places, axis=0)
    result = ROBUST[rule](torch.from_numpy(rows).float(), bad).numpy()
    assert np.isfinite(result).all()
    if rule == "krum":
        # It takes a row, and one that the good rows are near to: a bad one only where it lies among them.
        spread = np.abs(good[:, None] - good[None]).max()
        assert np.abs(result - good).min() <= len(rows) * spread + 1e-3
    else:
        assert (result >= good.min(axis=0) - 1e-3).all()
        assert (result <= good.max(axis=0) + 1e-3).all()


@pytest.mark.parametrize("rule", ROBUST)
@given(data=st.data())
def test_rows_that_are_not_finite_count_as_if_they_were_not_there(rule, data):
    rows, bad = data.draw(drawn(rule))
    known = data.draw(st.integers(0, bad))
    spoilt = rows.copy()
    spoilt[:known, :1] = np.nan
    if rows.size:
        expected = ROBUST[rule](torch.from_numpy(rows[known:]), bad - known)
        assert torch.equal(ROBUST[rule](torch.from_numpy(spoilt), bad), expected)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
@given(data=st.data())
def test_the_order_of_the_workers_changes_no_bit(rule, data):
    rows, bad = data.draw(drawn(rule))
    order = data.draw(st.permutations(range(len(rows))))
    rows = torch.from_numpy(rows)
    assert torch.equal(ROBUST[rule](rows, bad), ROBUST[rule](rows[list(order)], bad))


def test_krum_takes_the_same_row_for_every_order_of_workers():
    rows = torch.tensor([[0.0], [1.0], [1.1], [1.3], [9.0]])
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        assert rules.krum(rows[order], bad=1) == rules.krum(rows, bad=1) == 1.1


@pytest.mark.parametrize("rule", ROBUST)
def test_more_bad_rows_than_it_tolerates_are_not_hidden(rule):
    rows = torch.ones(5, 3)
    rows[:3] = torch.nan
    assert ROBUST[rule](rows, 1).isnan().all()


def test_large_numbers_are_compared_though_their_squares_are_not_finite():
    rows = torch.tensor([[3e38], [2.9e38], [-3e38]])
    assert rules.median(rows) == 2.9e38
    rows = torch.tensor([[3e38], [-3e38], [1.0], [1.5], [2.2]])
    assert rules.krum(rows, bad=1) == 1.5


@given(data=st.data())
def test_sum_and_mean(data):
    rows, _ = data.draw(drawn("median"))
    tensor = torch.from_numpy(rows)
    scale = {"rtol": 1e-12, "atol": 1e-9}
    np.testing.assert_allclose(rules.total(tensor), rows.sum(axis=0), **scale)
    np.testing.assert_allclose(rules.mean(tensor), rows.mean(axis=0), **scale)


@pytest.mark.parametrize(
    ("rule", "workers", "bad", "sentence"),
    [
        ("median", 2, 1, "median tolerates 1 bad worker only with at least 3 workers; you have 2"),
        (
            "trimmed_mean",
            4,
            2,
            "trimmed_mean tolerates 2 bad workers only with at least 5 workers; you have 4",
        ),
        ("krum", 4, 1, "krum tolerates 1 bad worker only with at least 5 workers; you have 4"),
        ("krum", 2, 0, "krum tolerates 0 bad workers only with at least 3 workers; you have 2"),
    ],
)
def test_a_bound_that_cannot_hold_is_refused(rule, workers, bad, sentence):
    with pytest.raises(ConfigError, match=sentence) as raised:
        check_bound(rule, workers, bad)
    assert f"Start {2 * bad + SPARE[rule]} workers" in raised.value.hint
    check_bound(rule, 2 * bad + SPARE[rule], bad)


def test_the_rules_themselves_refuse_it_too():
    with pytest.raises(ConfigError, match="only with at least 5 workers"):
        rules.krum(torch.ones(4, 2), bad=1)
    with pytest.raises(ConfigError, match="only with at least 3 workers"):
        rules.trimmed_mean(torch.ones(2, 2), bad=1)
