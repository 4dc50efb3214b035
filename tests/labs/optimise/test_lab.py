import pytest
from reports import Listening, assert_judged, assert_whole, rows, text_of

from shoal.cli.main import main
from shoal.config.schema import DigitsConfig, MlpConfig
from shoal.labs.frame import run_plan
from shoal.labs.optimise.lab import LAB
from shoal.labs.optimise.plan import CODECS, LINKS, Plan, Size
from shoal.labs.watch import QuietWatch
from shoal.labs.words import load_words

TINY = Plan(
    2,
    Size(turn=2, rounds=1, auto_steps=5, learn_steps=2, seeds=1),
    quick=True,
    data=DigitsConfig(samples=200),
    model=MlpConfig(hidden=(8,)),
    timed_by="threads",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "report"
    return run_plan(LAB, TINY, folder, "shoal lab optimise", load_words(LAB.package, "en"), Listening())


@pytest.fixture(scope="module")
def in_chinese(finished, tmp_path_factory):
    """The same report in the other language, from the same runs: training again would fail the test."""

    def train(*_):
        raise AssertionError("trained again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.labs.runs.launch_run", train)
        folder, words = tmp_path_factory.mktemp("zh") / "report", load_words(LAB.package, "zh")
        return run_plan(
            LAB, TINY, folder, "shoal lab optimise", words, QuietWatch(), finished.folder / "runs"
        )


def test_every_codec_has_a_time_on_every_link_and_sends_what_it_declares(finished):
    steps = rows(finished.folder, "steps")
    assert [(row["link"], row["codec"]) for row in steps] == [
        (link, codec) for link in LINKS for codec in CODECS
    ]
    declared = {row["codec"]: row["declared (B)"] for row in rows(finished.folder, "codecs")}
    assert all(row["sent by a worker (B)"] == declared[row["codec"]] for row in steps)
    assert all(float(row["step (ms)"]) > 0 for row in steps)


def test_auto_chose_one_candidate_on_every_link(finished):
    chosen = [row for row in rows(finished.folder, "auto") if row["chosen"] == "True"]
    assert [row["link"] for row in chosen] == list(LINKS)
    assert {row["candidate"] for row in chosen} <= set(CODECS)


def test_the_report_is_whole_in_both_languages(finished, in_chinese):
    for outcome, lang in ((finished, "en"), (in_chinese, "zh")):
        words = load_words(LAB.package, lang)
        assert_whole(outcome.folder, words)
        assert_judged(outcome, words, 9)
        assert "class TopK(" in text_of(outcome.folder)  # the code that ran
        assert len(text_of(outcome.folder).split("![")) == 1 + 4
    for table in ("steps", "auto"):
        assert rows(finished.folder, table) == rows(in_chinese.folder, table)


def test_one_worker_is_refused_before_anything_is_written(capsys, tmp_path):
    assert main(["lab", "optimise", "--workers", "1", "--out", str(tmp_path / "out")]) == 2
    assert "this lab needs at least 2 workers, got --workers 1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
