"""Findings must be able to come out either way, and to explain each outcome in every language."""

from shoal_labs.page.analysis import judgement
from shoal_labs.words import LANGUAGES, load_words

ONES, TWOS = [1.0, 1.1, 0.9, 1.05, 0.95], [2.0, 2.1, 1.9, 2.05, 1.95]
MIXED = [1.1, 0.95, 1.0, 0.9, 1.2]
STEADY = [0.96, 1.01, 0.99, 1.04, 1.02, 0.98, 1.0, 1.03, 0.97, 1.05, 0.95]
"""Rounds of something that takes about 1."""


def rounds(value, noise=1.0):
    """Rounds about a value; with more noise they scatter more."""
    return [value * (1 + noise * (each - 1)) for each in STEADY]


OUTCOMES_OF_A_COMPARISON = ((ONES, TWOS), (TWOS, ONES), (ONES, MIXED))
"""Series for a paired comparison in which the first is lower, is higher, cannot be distinguished."""


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


def assert_complete(outcomes, package, claims=None):
    """No finding in the words without outcomes, none with one outcome only, and one explanation for each outcome.

    Findings about time share the explanation of being undecided. Of a lab in several parts, `claims` is the module of
    one part's findings; the others are left out.
    """
    assert all({"holds", "fails"} <= by_verdict.keys() for by_verdict in outcomes.values())
    wanted = {finding.__name__: set(by_verdict) for finding, by_verdict in outcomes.items()}
    for lang in LANGUAGES:
        found = explained(load_words(package, lang))
        own = {claim: parts for claim, parts in found.items() if claims is None or hasattr(claims, claim)}
        assert own.keys() == wanted.keys()
        for claim, parts in own.items():
            assert wanted[claim] - {"undecided"} <= parts <= wanted[claim]


def explained(words):
    """{claim: verdicts that have an explanation} of all findings in a lab's words."""
    found = {}
    for key in words.sentences:
        if key.startswith("finding."):
            _, claim, part = key.split(".")
            found.setdefault(claim, set()).add(part)
    assert all({"claim", "numbers"} <= parts for parts in found.values())
    return {claim: parts - {"claim", "numbers"} for claim, parts in found.items()}
