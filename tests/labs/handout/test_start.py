import ast

import pytest

from shoal.errors import ConfigError
from shoal_labs.catalogue import LABS
from shoal_labs.handout.regions import Region, parts
from shoal_labs.handout.start import _sources, skeleton, start


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("number", [number for number, lab in LABS.items() if lab.hand_out])
def test_the_skeleton_has_the_shape_of_the_hand_out_and_no_line_of_the_solution(number, lang):
    files = {str(path): text for path, text in skeleton(number, lang).items() if isinstance(text, str)}
    assert set(files) == {*LABS[number].hand_out, f"task{number}/README.md"}
    for path, source in _sources(number).items():
        text = files[str(path)]
        if path.suffix == ".py":
            ast.parse(text)
        assert "# task:" not in text
        assert "noqa" not in text
        given = {line.strip() for part in parts(source) if isinstance(part, str) for line in [part]}
        for part in parts(source):
            if isinstance(part, Region):
                for line in part.lines:
                    assert line.strip() in given or line.strip() not in map(str.strip, text.splitlines())
                task = {"en": f"Task {part.name}: ", "zh": f"任务 {part.name}："}[lang]
                assert f'raise NotImplementedError("{task}' in text
                assert f"# {task}" in text
                assert f"`{part.name}`" in files[f"task{number}/README.md"]


def test_the_names_of_the_course_are_there():
    tree = ast.parse(
        next(text for path, text in skeleton("1", "en").items() if path.name == "MyOptimizer.py")
    )
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert {"BaseOptimizer", "GdOptimizer", "SgdOptimizer", "AdamOptimizer"} <= classes.keys()
    methods = {node.name for node in classes["BaseOptimizer"].body if isinstance(node, ast.FunctionDef)}
    assert {"step", "zero_grad"} <= methods
    init = next(node for node in classes["AdamOptimizer"].body if getattr(node, "name", "") == "__init__")
    assert [arg.arg for arg in init.args.args][:5] == ["self", "params", "lr", "b1", "b2"]


def test_a_students_work_is_never_overwritten(tmp_path):
    written = start("1", tmp_path, "en")
    work = next(path for path in written if path.name == "model.py")
    work.write_text("my work")
    next(path for path in written if path.name == "MyOptimizer.py").unlink()
    with pytest.raises(ConfigError, match="exists already"):
        start("1", tmp_path, "en")
    assert work.read_text() == "my work"
    assert not (work.parent / "MyOptimizer.py").exists()
