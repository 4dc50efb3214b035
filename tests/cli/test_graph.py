"""`shoal graph`: every example drawn, in every form, without a line through a box."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from shoal.autograd.drawn_examples import EXAMPLES
from shoal.cli.main import main

SVG = "{http://www.w3.org/2000/svg}"
NUMBER = r"-?\d+(?:\.\d+)?"


def answer(capsys, *words):
    code = main(["graph", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_a_name_the_examples_are_listed(capsys):
    code, out, _ = answer(capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*EXAMPLES, "next"]


def test_without_a_file_the_operations_are_printed(capsys):
    code, out, _ = answer(capsys, "course")
    assert code == 0
    assert "∂L/∂a[4] = mul(" in out
    compiled = answer(capsys, "course", "--static")[1]
    operations = [line for line in compiled.splitlines() if not line.endswith("a constant")]
    assert 0 < len(operations) < len(out.splitlines())
    for listing in (out, compiled):
        made = {"a", "b"}
        for line in listing.splitlines():
            name, _, rest = line.partition("[")
            assert set(re.findall(r"\bv\d+", rest)) <= made, "a value is used that no line made"
            made.add(name)


def test_files_are_written_in_every_form_and_named(capsys, tmp_path):
    places = {kind: tmp_path / f"graph.{kind}" for kind in ("svg", "dot", "mermaid")}
    (tmp_path / "graph.svg").write_text("old")
    flags = [word for kind, path in places.items() for word in (f"--{kind}", str(path))]
    code, out, _ = answer(capsys, "mlp", *flags)
    assert code == 0
    assert out.splitlines() == [str(path) for path in places.values()]
    beginnings = {kind: path.read_text(encoding="utf-8").split()[0] for kind, path in places.items()}
    assert beginnings == {"svg": "<svg", "dot": "digraph", "mermaid": "flowchart"}
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in places.values()}


def test_a_dash_writes_to_standard_output(capsys):
    code, out, _ = answer(capsys, "chain", "--mermaid=-")
    assert code == 0
    assert out.startswith("flowchart TD\n")
    assert out.count("matmul") == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("corse",), "unknown example 'corse': did you mean 'course'?"),
        (("mlp", "--svg", "no/such/folder/x.svg"), "cannot write no/such/folder/x.svg"),
        (("mlp", "--svg", "."), "cannot write .: it exists and is not a file"),
        (("mlp", "--svg", "/dev/null"), "cannot write /dev/null"),
        (("mlp", "--sgv", "x.svg"), "unknown flag '--sgv': did you mean '--svg'?"),
        (("mlp", "lenet"), "unexpected argument 'lenet'"),
        (("--svg", "x.svg"), "EXAMPLE is required"),
        (("mlp", "--svg"), "--svg needs a value"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_written(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def points_along(path):
    """Points of a path of cubic curves."""
    numbers = [float(number) for number in re.findall(NUMBER, path)]
    at, *rest = zip(numbers[::2], numbers[1::2], strict=True)
    for first, second, end in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        for part in range(21):
            t = part / 20
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            corners = (at, first, second, end)
            yield tuple(
                sum(w * corner[axis] for w, corner in zip(weights, corners, strict=True)) for axis in (0, 1)
            )
        at = end


def is_within(point, box, margin):
    (x, y), (left, top, width, height) = point, box
    return left - margin < x < left + width + margin and top - margin < y < top + height + margin


@pytest.mark.parametrize("name", EXAMPLES)
def test_arrows_keep_clear_of_boxes_they_do_not_join(capsys, name):
    root = ElementTree.fromstring(answer(capsys, name, "--svg=-")[1])
    boxes = [
        tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in root.findall(f"{SVG}g/{SVG}g/{SVG}rect")
    ]
    arrows = [list(points_along(path.get("d"))) for path in root.findall(f"{SVG}g/{SVG}path")]
    assert boxes
    assert arrows
    for points in arrows:
        others = [box for box in boxes if not any(is_within(end, box, 2) for end in (points[0], points[-1]))]
        touched = [box for box in others for point in points if is_within(point, box, 3)]
        assert not touched
