"""A student's folder, and what the check says as sentences of a report."""

import os

import pytest
from hand_ins import hand_in

from shoal_labs.student.submission import because, joined, read_submission
from shoal_labs.words import load_words

FAULTS = {
    "en": ["with 9 samples on 4 nodes:", "3 are seen by no node", "is the rank part of the seed?"],
    "zh": ["4 个节点，9 个样本：", "3 个样本没有节点用到", "随机种子里有 rank 吗？"],
}


@pytest.mark.parametrize(
    ("lang", "sentence"),
    [
        ("en", "with 9 samples on 4 nodes: 3 are seen by no node; is the rank part of the seed?"),
        ("zh", "4 个节点，9 个样本：3 个样本没有节点用到；随机种子里有 rank 吗？"),
    ],
)
def test_faults_become_one_sentence_with_one_mark_at_its_end(lang, sentence):
    words = load_words("shoal_labs.lab3", lang, "shoal_labs.student")
    why = joined(FAULTS[lang], words)
    assert why == sentence
    assert because(why, words).endswith(sentence)
    assert because(why[:-1], words)[-1] in ".。"
    assert because("", words) == ""


def test_only_real_files_are_code(tmp_path):
    submission = read_submission("1", hand_in(tmp_path), "MyOptimizer.py")
    before, beside = submission.fingerprint, submission.file.parent
    (beside / ".#MyOptimizer.py").symlink_to("an@host.123:456")  # what Emacs leaves while the file is edited
    (beside / "folder.py").mkdir()
    os.mkfifo(beside / "pipe.py")
    assert submission.fingerprint == before
    (beside / "more.py").write_text("")
    assert submission.fingerprint != before
