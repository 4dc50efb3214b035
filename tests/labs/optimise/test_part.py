import pytest
from outcomes import rounds

from shoal_labs.optimise.lab import LAB, PARTS, plan_for
from shoal_labs.optimise.part import in_turns
from shoal_labs.settings import OptimiseSettings


def test_no_two_parts_have_runs_or_claims_of_the_same_name():
    plan = plan_for(OptimiseSettings(quick=True))
    names = [name for part, made in PARTS.items() for name in made.runs(plan.parts[part])]
    assert len(names) == len(set(names)) == len(LAB.runs(plan))
    assert len({claim.name for claim in LAB.claims}) == len(LAB.claims)


@pytest.mark.parametrize(
    ("rule", "fast", "slow", "verdict"),
    [
        ("fast > 1.1 * slow", rounds(2.0), rounds(1.0), "holds"),
        ("fast > 1.1 * slow", rounds(1.05, noise=0.5), rounds(1.0), "fails"),
        ("fast > 1.1 * slow", rounds(1.1, noise=-1), rounds(1.0), "undecided"),
        ("fast > 1.1 * slow", rounds(2.0)[:3], rounds(1.0)[:3], "undecided"),
        ("1.1 * slow < fast", rounds(1.0), rounds(1.2), "holds"),
        ("1.1 * slow < fast", rounds(1.0), rounds(1.05, noise=0.5), "fails"),
        ("asp > 0.8 * ideal", rounds(1.9), rounds(2.0), "holds"),
        ("asp > 0.8 * ideal", rounds(1.0), rounds(2.0), "fails"),
        ("asp > 0.8 * ideal", rounds(1.6, noise=-1), rounds(2.0), "undecided"),
    ],
)
def test_series_are_compared_with_the_factor_of_the_rule(rule, fast, slow, verdict):
    assert in_turns("claim", rule, lambda pair: pair).judge((fast, slow)).verdict == verdict


def test_the_sentences_have_the_numbers_without_the_factor():
    found = in_turns("claim", "1.1 * slow < fast", lambda pair: pair).judge((rounds(1.0), rounds(2.0)))
    assert (found.numbers["slow"].value, found.numbers["fast"].value) == (1.0, 2.0)
    assert (found.numbers["ratio"], found.numbers["part"]) == (0.5, 50.0)
    assert found.numbers["percent"] == pytest.approx(10)
    assert found.about_time
    assert in_turns("claim", "a > 0.8 * b", lambda pair: pair).judge(([1.0], [1.0])).numbers["percent"] == 80
