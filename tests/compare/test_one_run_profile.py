"""The profile of a user's own program: its findings, its page, and what other commands say of its folder."""

from dataclasses import replace

import pytest
from made_runs import DDP, write_profile, write_run

from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.compare.run_report import write_run_report
from shoal.errors import ConfigError
from shoal.report.words import page_words
from shoal.words import Words

SLOW, EVEN, MOVING = ((3, 0.5, 1), (9, 0.5, 1)), ((9, 0.5, 0),) * 2, ((7, 3, 0),) * 2


def with_data(found, part):
    """The same profile, of which every step loads data for so long."""
    (entry,) = found.entries
    parts = {step: part + step / 1000 for step in range(2, 20)}
    ranks = [
        replace(rank, data_s=part * rank.train_s, parts={**rank.parts, "data": parts}) for rank in entry.ranks
    ]
    return replace(found, entries=(replace(entry, ranks=tuple(ranks)),))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_largest_cost_is_named_and_no_flag_of_ours_is_advised(tmp_path, lang):
    words = page_words(lang, "shoal.compare")
    cases = {
        "waits": compare([write_profile(tmp_path / "slow", ranks=SLOW)]),
        "moves": compare([write_profile(tmp_path / "moving", ranks=MOVING)]),
        "loads": with_data(compare([write_profile(tmp_path / "even", ranks=EVEN)]), 0.5),
    }
    for kind, found in cases.items():
        first, *_ = findings(found, words)
        assert first.kind == kind
        assert "train.py" in first.claim
        assert "--" not in first.advice.replace("--timeline", "")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_its_page_has_the_program_and_no_training(tmp_path, lang):
    words: Words = page_words(lang, "shoal.compare")
    out = tmp_path / "page"
    out.mkdir()
    write_run_report(out, compare([write_profile(tmp_path / "it", ranks=SLOW)]), words)
    page = (out / "report.html").read_text()
    assert "/home/me/train.py --lr 1" in page
    assert words("kind.data") in page
    assert words("run.test_accuracy") not in page


def test_it_is_not_compared_with_runs(tmp_path):
    folders = [write_profile(tmp_path / "it", ranks=SLOW), write_run(tmp_path / "run", DDP, ranks=EVEN)]
    with pytest.raises(ConfigError, match="is the profile of a program"):
        compare(folders)
