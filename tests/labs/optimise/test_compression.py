from types import SimpleNamespace

import pytest
from outcomes import rounds

from shoal_labs.optimise import compression_page as page
from shoal_labs.optimise.compression import CODECS, LINKS
from shoal_labs.words import load_words

CLAIMS = {claim.name: claim for claim in page.CLAIMS}
LOW, NEAR, HIGH = rounds(1.0), rounds(1.0, noise=-2), rounds(5.0)
DENSE, KEPT = (0.940, 0.942, 0.941, 0.943, 0.940), (0.938, 0.941, 0.939, 0.941, 0.939)
LOST = (0.90, 0.902, 0.901, 0.903, 0.899)


def timed(chosen="none", **ways):
    """Measurements of a step: every codec takes LOW on every link, but those in `ways`, on the slowest link."""
    steps = {link: {codec: SimpleNamespace(rounds_ms=LOW) for codec in CODECS} for link in LINKS}
    steps["20mbit"] |= {codec: SimpleNamespace(rounds_ms=each) for codec, each in ways.items()}
    return SimpleNamespace(
        timed=steps,
        chosen={link: SimpleNamespace(codec=chosen) for link in LINKS},
        fastest=lambda link: min(steps[link], key=lambda codec: sum(steps[link][codec].rounds_ms)),
        break_even=dict.fromkeys(CODECS, 3e7),
    )


FASTER = dict.fromkeys(CODECS[1:], LOW) | {"none": HIGH}


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (timed(**FASTER), "holds"),  # on the one link below 30 Mbit/s; on the others nothing is decided
        (timed(none=LOW, **dict.fromkeys(CODECS[1:], HIGH)), "fails"),
        (timed(), "undecided"),
    ],
)
def test_the_break_even_rate_predicts_where_a_codec_pays_or_not(measured, verdict):
    assert page.break_even_predicts(measured).verdict == verdict


@pytest.mark.parametrize(
    ("its", "verdict"),
    [
        (DENSE, "holds"),
        (KEPT, "holds"),
        (LOST, "fails"),
        ((0.940, 0.915, 0.96, 0.93, 0.95), "undecided"),
        (tuple(each - 0.5 for each in DENSE), "undecided"),  # the same loss with every seed
    ],
)
def test_the_codec_that_loses_most_decides_whether_accuracy_is_kept(its, verdict):
    found = page.accuracy_is_kept(SimpleNamespace(accuracies=dict.fromkeys(CODECS, DENSE) | {"sign": its}))
    assert found.verdict == verdict
    assert found.numbers["worst"] == ("fp16" if its == DENSE else "sign")


def test_two_seeds_decide_nothing_about_accuracy():
    measured = SimpleNamespace(accuracies=dict.fromkeys(CODECS, (0.94, 0.95)))
    assert page.accuracy_is_kept(measured).verdict == "undecided"


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (timed("sign"), "holds"),  # the best codec itself
        (timed("sign", sign=rounds(1.01)), "holds"),
        (timed("sign", sign=HIGH), "fails"),
        (timed("sign", sign=NEAR), "undecided"),
    ],
)
def test_on_every_link_the_chosen_codec_is_near_the_best_or_not(measured, verdict):
    assert page.auto_is_near_the_best(measured).verdict == verdict


@pytest.mark.parametrize(
    ("fast", "slow", "verdict"),
    [("none", "sign", "holds"), ("fp16", "sign", "fails"), ("none", "none", "fails")],
)
def test_auto_adapts_if_it_compresses_on_the_slow_link_alone(fast, slow, verdict):
    chosen = {"loopback": SimpleNamespace(codec=fast), "20mbit": SimpleNamespace(codec=slow)}
    found = CLAIMS["auto_adapts"].judge(SimpleNamespace(chosen=chosen))
    assert (found.verdict, found.about_time) == (verdict, True)


def test_bytes_are_as_declared_only_if_those_of_every_codec_are():
    def sending(sent):
        declared = {"none": 400, "sign": 13}
        timed = {codec: SimpleNamespace(sent_bytes=sent[codec]) for codec in declared}
        measured = SimpleNamespace(timed={"loopback": timed}, expected_bytes=lambda codec: declared[codec])
        return CLAIMS["bytes_as_declared"].judge(measured).verdict

    assert sending({"none": 400, "sign": 13}) == "holds"
    assert sending({"none": 400, "sign": 14}) == "fails"


@pytest.mark.parametrize(
    ("lang", "shown"),
    [("en", "loopback: uncompressed, 20 Mbit/s: sign"), ("zh", "本机回环：不压缩、20 Mbit/s：sign")],
)
def test_links_and_codecs_have_the_names_of_the_language(lang, shown):
    chosen = {"loopback": SimpleNamespace(codec="none"), "20mbit": SimpleNamespace(codec="sign")}
    found = CLAIMS["auto_adapts"].judge(SimpleNamespace(chosen=chosen))
    assert load_words("shoal_labs.optimise", lang).shown(found.numbers["choices"]) == shown
