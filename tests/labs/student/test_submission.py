"""What the check says, as sentences of a report."""

import pytest

from shoal.labs.student.submission import because, joined
from shoal.labs.words import load_words

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
    words = load_words("shoal.labs.lab3", lang, "shoal.labs.student")
    why = joined(FAULTS[lang], words)
    assert why == sentence
    assert because(why, words).endswith(sentence)
    assert because(why[:-1], words)[-1] in ".。"
    assert because("", words) == ""
