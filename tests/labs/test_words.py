import itertools
import string

import pytest
from outcomes import explained

from shoal.errors import ConfigError
from shoal.labs.catalogue import LABS
from shoal.labs.words import LANGUAGES, load_words


def places(sentence):
    return sorted((name, spec) for _, name, spec, _ in string.Formatter().parse(sentence) if name)


@pytest.mark.parametrize("lab", LABS.values(), ids=LABS)
def test_all_languages_have_the_same_keys_and_places(lab):
    first, *others = (load_words(lab.package, lang).sentences for lang in LANGUAGES)
    for other in others:
        assert other.keys() == first.keys()
        for key in first:
            assert places(other[key]) == places(first[key]), key


@pytest.mark.parametrize("lab", LABS.values(), ids=LABS)
def test_chinese_sentences_have_chinese_punctuation(lab):
    for key, sentence in load_words(lab.package, "zh").sentences.items():
        for mark in ",;:?":
            for before, after in itertools.pairwise(sentence):
                assert not ("一" <= before <= "鿿" and after == mark) or key == "task.readme", (key, sentence)


def test_an_unknown_language_answers_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown language 'zhh': did you mean 'zh'"):
        load_words("shoal.labs.lab1", "zhh")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("lab", LABS.values(), ids=LABS)
def test_every_finding_has_another_explanation_for_each_verdict(lab, lang):
    words = load_words(lab.package, lang)
    for claim, verdicts in explained(words).items():
        assert {"holds", "fails"} <= verdicts <= {"holds", "fails", "undecided"}, claim
        texts = {words.sentences[f"finding.{claim}.{verdict}"] for verdict in verdicts}
        assert len(texts) == len(verdicts), claim
