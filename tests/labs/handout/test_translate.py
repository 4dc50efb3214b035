import ast
import re
import tomllib
from importlib import resources

import pytest

from shoal_labs.handout.start import skeleton
from shoal_labs.handout.translate import in_chinese

HAND_OUTS = ("1", "2", "3", "4")


def programs(number, lang):
    return {path: text for path, text in skeleton(number, lang).items() if path.suffix == ".py"}


def docstrings(text):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [each for each in found if each]


@pytest.mark.parametrize("number", HAND_OUTS)
def test_the_chinese_skeleton_is_the_same_program_with_chinese_docstrings(number):
    english = programs(number, "en")
    for path, text in programs(number, "zh").items():
        assert len(docstrings(text)) == len(docstrings(english[path]))
        assert all(re.search("[\u3400-\u9fff]", each) for each in docstrings(text)), path

        def without_texts(source):
            tree = ast.parse(source)
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    node.value = ""
            return ast.dump(tree)

        assert without_texts(text) == without_texts(english[path])


def test_every_translation_belongs_to_a_docstring():
    used = {
        each for number in HAND_OUTS for text in programs(number, "en").values() for each in docstrings(text)
    }
    file = resources.files("shoal_labs.handout") / "docstrings.toml"
    assert {each["en"] for each in tomllib.loads(file.read_text(encoding="utf-8"))["docstring"]} == used


def test_a_docstring_without_a_translation_stays():
    assert in_chinese('"""Unheard of."""\n') == '"""Unheard of."""\n'
