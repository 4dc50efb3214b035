import re
import string
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal_labs.catalogue import LABS
from shoal_labs.frame import load_lab
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.template import Content, Page
from shoal_labs.settings import SETTINGS
from shoal_labs.words import LANGUAGES, load_words


def places(sentence):
    return sorted((name, spec) for _, name, spec, _ in string.Formatter().parse(sentence) if name)


PACKAGES = [*(lab.package for lab in LABS.values()), "shoal.compare", "shoal.report"]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_languages_have_the_same_keys_and_places(package):
    first, *others = (load_words(package, lang, "shoal_labs.student").sentences for lang in LANGUAGES)
    for other in others:
        assert other.keys() == first.keys()
        for key in first:
            assert places(other[key]) == places(first[key]), key


CHINESE = "[\u3400-\u9fff]"
ASCII_MARKS = re.compile(
    rf"(?<={CHINESE}) ?[,;:!?()](?= ?{CHINESE})"  # between Chinese characters
    rf"|(?<={CHINESE})[,;:!?.](?=\s|$)"  # at the end of a part
    rf"|(?<={CHINESE})\(|\)(?={CHINESE})",
    re.MULTILINE,
)
CODE = re.compile(r"```.*?```|`[^`]*`|^    .*$", re.DOTALL | re.MULTILINE)
CHINESE_FILES = sorted(
    path for package in ("shoal", "shoal_labs") for path in Path(str(resources.files(package))).rglob("zh.*")
)


@pytest.mark.parametrize("path", CHINESE_FILES, ids=lambda path: path.parts[-3])
def test_chinese_sentences_have_chinese_punctuation(path):
    for key, sentence in sentences_of(path):
        found = ASCII_MARKS.search(CODE.sub("", sentence))
        assert found is None, (key, sentence[max(0, found.start() - 20) : found.end() + 20])


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("package", PACKAGES)
def test_sentences_have_no_marks_but_those_that_a_page_knows(package, lang):
    """`code` and **strong**; a single star would be printed. Read-me files are Markdown of their own."""
    for key, sentence in load_words(package, lang).sentences.items():
        plain = re.sub(r"\*\*.+?\*\*", "", CODE.sub("", sentence))
        assert key.startswith("readme") or not re.search(r"\*[^\s*][^*\n]*\*", plain), key


def test_the_search_for_ascii_punctuation_finds_it():
    for wrong in ("损失,准确率", "损失: 低", "结束.", "一, 二", "损失(高)"):
        assert ASCII_MARKS.search(wrong), wrong
    for right in ("损失，准确率", "SGD, Adam", "η = 0.1：高", "见 model.py。", "n(n − 1)", "（W = 2）"):
        assert not ASCII_MARKS.search(right), right


@pytest.mark.parametrize("path", CHINESE_FILES, ids=lambda path: path.parts[-3])
def test_all_pages_use_the_words_of_one_glossary(path):
    text = (resources.files("shoal_labs") / "words" / "glossary.toml").read_text(encoding="utf-8")
    for thing, words in tomllib.loads(text).items():
        for key, sentence in sentences_of(path):
            for other in words["not"]:
                assert other not in sentence, f"{key}: {thing} is {words['zh']}, not {other}"


def sentences_of(path):
    """Every sentence of a file by its key."""
    text = path.read_text(encoding="utf-8")
    found = [("", tomllib.loads(text) if path.suffix == ".toml" else {"": text})]
    while found:
        prefix, tree = found.pop()
        for key, value in tree.items():
            if isinstance(value, str):
                yield f"{prefix}{key}", value
            else:
                found.append((f"{prefix}{key}.", value))


@pytest.mark.parametrize(("lang", "title"), [("en", "(2, 4 workers)"), ("zh", "（2、4 个节点）")])
def test_a_list_in_a_sentence_has_the_comma_of_the_language(lang, title):
    lab = load_lab("3")
    plan = lab.plan(SETTINGS[lab.number](quick=True, workers="2,4"))
    template = lab.template(lang).splitlines()[0]
    page = Page(Content(lab.subject(plan)), {}, Pictures({}), lab.words(lang), {})
    assert title in page.document(template)[0].title


def test_an_unknown_language_answers_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown language 'zhh': did you mean 'zh'"):
        load_words("shoal_labs.lab1", "zhh")
