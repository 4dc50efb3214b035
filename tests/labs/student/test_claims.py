"""Every claim about a student's code, with either outcome, in both languages."""

import math

import pytest

from shoal.report.paired import by_rounds, by_seeds
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.template import Content, Page, pieces, read_template
from shoal_labs.student import claims
from shoal_labs.student.spec import by_claim
from shoal_labs.words import load_words

LOW, HIGH = [1.0 + 0.01 * i for i in range(12)], [2.0 + 0.01 * i for i in range(12)]
CASES = {
    "equal": [claims.equal("p", value, 1e-4, 5, "the sum") for value in (1e-7, 1e-2)],
    "nodes": [claims.same_on_all("p", value, 1e-4) for value in (0.0, 1e-2)],
    "calls": [
        claims.calls("p", "reduce", names, ("all_reduce",))
        for names in (["broadcast", "reduce"], ["all_reduce", "reduce"])
    ],
    "forms": [
        claims.calls("p", "all_gather", names, ("all_reduce",))
        for names in (["all_gather_into_tensor"], ["all_gather", "all_reduce_coalesced"])
    ],
    "reduce": [
        claims.calls("p", "reduce", names, ("all_reduce", "all_gather"))
        for names in (["reduce"], ["reduce_scatter_tensor"])
    ],
    "uneven": [claims.uneven("p", value, 1e-4, (48, 16)) for value in (1e-7, 1e-2)],
    "slow": [claims.slow_node("p", by_rounds(*times), 5.0) for times in ((HIGH, LOW), (LOW, HIGH))],
    "faster": [claims.faster("a", "b", by_rounds(*times), (10, 20)) for times in ((LOW, HIGH), (HIGH, LOW))],
    "accurate": [
        claims.as_accurate("p", by_seeds([0.9] * 6, [own + 0.001 * i for i in range(6)]))
        for own in (0.9, 0.5)
    ],
    "covers": [claims.covers("p", 2, *seen, "") for seen in ((1.0, 1), (0.5, 2))],
    "twice": [claims.covers("p", 2, 1.0, times, "") for times in (1, 2)],
    "draws": [claims.draws("p", 2, seen, 0.632, "") for seen in (0.63, 0.5)],
    "epochs": [claims.new_order("p", 2, changes) for changes in (True, False)],
    "trains": [claims.trains("p", steps, 8, why) for steps, why in ((8, ""), (3, "waits"))],
    "split": [claims.split("p", "worker1: conv1", count) for count in (2, 1)],
    "shape": [claims.in_shape(shapes, "") for shapes in ([[], []], [[], [3]])],
    "gradient": [claims.gradient("first", value, 1e-5, "") for value in (1e-7, math.inf)],
    "second": [claims.gradient("second", value, 1e-5, "") for value in (1e-7, 1.0)],
    "backward": [claims.backward_longer(by_rounds(*times), 50, 90) for times in ((HIGH, LOW), (LOW, HIGH))],
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_decide(case):
    holds, fails = CASES[case]
    assert (holds.verdict, fails.verdict) == ("holds", "fails")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_verdict_has_words(lang):
    words = load_words("shoal_labs.lab2", lang, "shoal_labs.student")
    template = read_template("shoal_labs.student", lang)
    findings = by_claim([each for pair in CASES.values() for each in pair])
    assert all(findings.values())
    places = [f"{{finding:{piece.name}}}" for piece in pieces(template) if piece.kind == "finding"]
    assert sorted(places) == sorted(f"{{finding:{name}}}" for name in claims.NAMES)
    analysis = template[template.index("{finding:") :]
    only = "\n\n".join(block for block in analysis.split("\n\n") if block.startswith("{finding:"))
    document, _ = Page(Content(), findings, Pictures({}), words, {}).document(only)
    for block in document.blocks:
        assert "{" not in block.claim + block.numbers + block.reason
