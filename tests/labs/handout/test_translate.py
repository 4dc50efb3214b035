import ast
import io
import re
import tokenize

import pytest

from shoal_labs.catalogue import LABS
from shoal_labs.handout.start import skeleton
from shoal_labs.handout.translate import translations

HAND_OUTS = [number for number, lab in LABS.items() if lab.hand_out]
CHINESE = re.compile("[\u3400-\u9fff]")
ENGLISH = re.compile(r"[A-Za-z]{2,}[,:;]? +[A-Za-z]{2,}")
CODE = re.compile(r"`[^`]*`|\{[^}]*\}|\([a-z_, ]*\)|^python .*", re.MULTILINE)


def programs(number, lang):
    return {str(path): text for path, text in skeleton(number, lang).items() if path.suffix == ".py"}


def strings(program):
    """Every string of a program; in an f-string, 0 stands for each value."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                getattr(part, "value", "") if isinstance(part, ast.Constant) else "0" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def explanations(program):
    """Comments, docstrings and the help of flags."""
    tokens = tokenize.generate_tokens(io.StringIO(program).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Expr) or (
            isinstance(node, ast.keyword) and node.arg in ("help", "description")
        ):
            value = getattr(node.value, "value", "")
            found += [value] if isinstance(value, str) and value else []
    return found


def structure(program):
    """A program without its texts."""
    tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("number", HAND_OUTS)
def test_the_chinese_skeleton_is_the_same_program_without_english(number):
    english = programs(number, "en")
    for path, program in programs(number, "zh").items():
        assert structure(program) == structure(english[path]), path
        for text in [*strings(program), *explanations(program)]:
            assert not ENGLISH.search(CODE.sub("", text)), (path, text)
        for text in explanations(program):
            assert CHINESE.search(text) or not re.search("[a-z]{3}", CODE.sub("", text)), (path, text)


@pytest.mark.parametrize("number", HAND_OUTS)
def test_the_english_skeleton_has_no_chinese(number):
    for path, text in skeleton(number, "en").items():
        assert isinstance(text, bytes) or not CHINESE.search(text), path


def test_every_translation_belongs_to_a_hand_out():
    everything = "".join(
        text for number in HAND_OUTS for text in skeleton(number, "en").values() if isinstance(text, str)
    )
    assert [english for english in translations() if english not in everything] == []


def test_the_search_for_english_finds_it():
    program = 'def f(x):\n    """Return x."""\n    print(f"step {x} of all steps")  # twice\n'
    assert any(map(ENGLISH.search, strings(program)))
    assert {"# twice", "Return x."} == set(explanations(program))
