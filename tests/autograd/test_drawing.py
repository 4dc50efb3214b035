import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from shoal.autograd import Tape, Variable, grad
from shoal.autograd.drawing import COLOURS, dot, mermaid, picture, svg
from shoal.autograd.drawn_examples import EXAMPLES, example
from shoal.autograd.static.graph import graph_of, trace
from shoal.errors import AutogradError

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_shows_every_node_and_arrow(name):
    graph = example(name)
    drawn = picture(graph)
    assert sum(kind in ("forward", "backward") for kind in (n.kind for n in drawn.nodes.values())) == len(
        graph.operations
    )

    text = dot(graph)
    assert text.count("[label=") == len(drawn.nodes)
    assert text.count("->") == len(drawn.edges)

    text = mermaid(graph)
    assert len(re.findall(r":::", text)) == len(drawn.nodes)
    assert len(re.findall(r"-->|-\.->", text)) == len(drawn.edges)

    root = ElementTree.fromstring(svg(graph, name))
    assert len(root.findall(f"{SVG}g/{SVG}g")) == len(drawn.nodes)
    assert len(root.findall(f"{SVG}g/{SVG}path")) == len(drawn.edges)


def boxes(text: str) -> list[tuple[float, float, float, float]]:
    root = ElementTree.fromstring(text)
    return [
        tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in root.findall(f"{SVG}g/{SVG}g/{SVG}rect")
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_two_boxes_overlap_and_all_lie_on_the_page(name):
    text = svg(example(name))
    root = ElementTree.fromstring(text)
    found = boxes(text)
    for i, (x, y, width, height) in enumerate(found):
        assert x >= -20
        assert x + width <= float(root.get("width"))
        for other_x, other_y, other_width, other_height in found[:i]:
            beside = x + width <= other_x or other_x + other_width <= x
            above = y + height <= other_y or other_y + other_height <= y
            assert beside or above


def test_the_svg_stands_alone_and_escapes_names():
    leaf = Variable(torch.ones(2), name='<w & "x">')
    text = svg(trace(lambda x: x * leaf, [torch.ones(2)]), "a < b")
    ElementTree.fromstring(text)
    assert "&lt;w &amp;" in text
    assert "a &lt; b" in text
    assert not re.search(r"(href|src)=|@import|<script", text)


def test_forward_and_backward_have_two_colours():
    text = svg(example("course"))
    for kind in ("forward", "backward"):
        assert text.count(COLOURS[kind][0]) > 1


def test_a_dynamic_tape_can_be_drawn():
    with Tape() as tape:
        a = Variable(torch.ones(2), name="a")
        loss = (a * a).sum()
        (gradient,) = grad(loss, [a], record=True)
        drawn = picture(graph_of(tape, loss, gradient))
    kinds = [node.kind for node in drawn.nodes.values()]
    assert kinds.count("forward") == 2
    assert kinds.count("backward") == 4
    assert kinds.count("result") == 2


def test_an_unknown_example_is_named():
    with pytest.raises(AutogradError, match="unknown example 'mpl': did you mean 'mlp'"):
        example("mpl")
