"""Findings must be able to come out either way, and to say so in every language."""

from shoal.labs.analysis import judgement
from shoal.labs.words import load_words


def cases_of(outcomes):
    """{finding: {verdict: [arguments]}} as a list of (finding, verdict, arguments)."""
    return [
        (finding, verdict, args)
        for finding, by_verdict in outcomes.items()
        for verdict, cases in by_verdict.items()
        for args in cases
    ]


def assert_says(finding, verdict, args, package, lang):
    found = finding(*args)
    assert found.verdict == verdict
    assert found.claim == finding.__name__
    block = judgement(found, load_words(package, lang))
    assert "{" not in block.claim + block.numbers + block.reason


def assert_complete(outcomes, groups):
    """No finding of the lab without its outcomes, and none that can come out only one way."""
    assert {claim for claims in groups.values() for claim in claims} == set(outcomes)
    assert all({"holds", "fails"} <= by_verdict.keys() for by_verdict in outcomes.values())
