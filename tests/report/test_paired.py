import random

import pytest

from shoal.report.paired import FEWEST, by_rounds, by_seeds, first_higher, first_lower, outside_interval


def noisy(count, seed, shift=0.0, spikes=0.0):
    """Two series with the same distribution but for a shift; a spike is a pause of the machine."""
    draw = random.Random(seed)

    def one():
        return draw.gauss(1.0, 0.1) + (draw.expovariate(0.2) if draw.random() < spikes else 0.0)

    return [one() + shift for _ in range(count)], [one() for _ in range(count)]


@pytest.mark.parametrize(
    ("compare", "count"),
    [(by_seeds, 5), (by_seeds, 11), (by_rounds, 5), (by_rounds, 21)],
)
@pytest.mark.parametrize("spikes", [0.0, 0.3])
def test_where_there_is_no_difference_none_is_found(compare, count, spikes):
    verdicts = [first_lower(compare(*noisy(count, seed, spikes=spikes))) for seed in range(1000)]
    assert (
        verdicts.count("holds") + verdicts.count("fails") <= 4
    )  # the level promises one in a thousand, on average


def test_a_clear_difference_is_found_among_few_seeds():
    higher = [first_higher(by_seeds(*noisy(6, seed, shift=1.0))) for seed in range(200)]
    assert higher.count("holds") >= 190
    assert "fails" not in higher


def test_more_rounds_find_a_smaller_difference_although_some_are_disturbed():
    def found(rounds):
        return [
            first_higher(by_rounds(*noisy(rounds, seed, shift=0.15, spikes=0.1))) for seed in range(200)
        ].count("holds")

    assert found(11) < found(41)
    assert found(41) >= 120


def test_what_was_the_same_for_both_falls_out():
    luck = [0.0, 10.0, 3.0, 7.0, 1.0, 4.0]
    gains = [0.9, 1.1, 1.0, 0.9, 1.0, 1.1]
    pair = by_seeds([each + gain for each, gain in zip(luck, gains, strict=True)], luck)
    assert pair.difference.value == pytest.approx(1.0)
    assert first_higher(pair) == "holds"
    assert first_lower(pair) == "fails"
    assert (pair.agreeing, pair.pairs.count, pair.pairs.by) == (6, 6, "seeds")


def test_too_few_pairs_decide_nothing_even_if_they_agree_exactly():
    assert first_higher(by_seeds([2.0] * (FEWEST - 1), [1.0] * (FEWEST - 1))) == "undecided"
    assert first_higher(by_rounds([2.0], [1.0])) == "undecided"
    assert first_higher(by_seeds([1.0] * 6, [1.0] * 6)) == "undecided"


def test_a_sign_test_needs_eleven_rounds():
    assert (outside_interval(10), outside_interval(11)) == (0, 1)
    slower, faster = [2.0] * 10 + [0.5], [1.0] * 11
    assert first_higher(by_rounds(slower, faster)) == "undecided"  # one round of eleven the other way round
    assert first_higher(by_rounds([2.0] * 10 + [2.1], faster)) == "holds"


def test_the_interval_is_known_for_the_steps_of_a_long_run():
    assert outside_interval(4000) == 1896
    assert 50_000 - outside_interval(100_000) == pytest.approx(3.29 / 2 * 100_000**0.5, rel=0.01)


@pytest.mark.parametrize("compare", [by_seeds, by_rounds])
@pytest.mark.parametrize("count", [5, 11, 21])
def test_pairs_that_all_differ_by_the_same_decide_nothing(compare, count):
    pair = compare([2.0] * count, [1.0] * count)
    assert (first_higher(pair), pair.difference.basis, pair.settled) == ("undecided", "none", False)


@pytest.mark.parametrize(
    ("second", "noise", "settled"),
    [(2.0, 0.3, True), (1.0, 0.01, True), (1.0, 0.3, False), (1.1, 0.5, False)],
)
def test_rounds_are_settled_when_they_decide_clearly_or_differ_by_little(second, noise, settled):
    draw = random.Random(0)
    pair = by_rounds(*([value + draw.gauss(0, noise / 4) for _ in range(15)] for value in (1.0, second)))
    assert pair.settled == settled


def test_a_unit_changes_all_numbers():
    pair = by_rounds([0.003] * 11, [0.001] * 11).scaled(1e3)
    assert (pair.first.value, pair.second.value) == pytest.approx((3.0, 1.0))
    assert pair.difference.value == pytest.approx(2.0)
    assert pair.ratio == pytest.approx(3.0)
