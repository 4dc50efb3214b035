"""What a comparison shows on a terminal: the most useful remarks first, and nothing cut off."""

import io

import pytest
from made_runs import DDP, write_run

from shoal.compare.comparison import compare
from shoal.compare.remark import Remark
from shoal.compare.terminal import MOST_REMARKS, show
from shoal.report.words import page_words


@pytest.fixture
def two(tmp_path):
    ddp = write_run(tmp_path / "ddp", DDP, ranks=((9, 0.5, 0),) * 2)
    return compare([write_run(tmp_path / "single", "--threads 1"), ddp])


def shown(comparison, remarks, folder, lang="en", every=False):
    stream = io.StringIO()
    show(comparison, remarks, folder, stream, page_words(lang, "shoal.compare"), every)
    return stream.getvalue()


def test_five_remarks_are_shown_and_all_of_them_with_all(two, tmp_path):
    remarks = [Remark("holds", "equal", "equal", f"claim {number}", "") for number in range(MOST_REMARKS + 2)]
    first, every = (shown(two, remarks, tmp_path, every=every) for every in (False, True))
    assert [f"claim {number}" in first for number in range(7)] == [True] * 5 + [False] * 2
    assert every.count("claim") == 7


def test_a_long_chinese_sentence_is_shown_whole(two, tmp_path):
    sentence = "从相同状态走一步之后最大的差异" * 12
    text = shown(two, [Remark("holds", "equal", "等价", sentence, "")], tmp_path, "zh")
    assert "…" not in text
    assert sentence in "".join(text.split())
