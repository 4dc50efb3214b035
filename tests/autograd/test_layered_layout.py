from shoal.autograd.layered_layout import lay_out

WIDTH = 40.0


def test_arrows_point_down_and_sources_lie_just_above_their_reader():
    sizes = dict.fromkeys(["a", "b", "c", "late", "d"], WIDTH)
    layout = lay_out(sizes, [("a", "b"), ("b", "c"), ("c", "d"), ("late", "d")])
    height = {node: y for node, (_, y) in layout.centres.items()}
    assert height["a"] < height["b"] < height["c"] < height["d"]
    assert height["late"] == height["c"]


def test_an_arrow_past_a_layer_bends_around_the_nodes_there():
    sizes = dict.fromkeys(["a", "b", "c"], WIDTH)
    layout = lay_out(sizes, [("a", "b"), ("b", "c"), ("a", "c")])
    (_, (bend_x, bend_y), _) = layout.bends["a", "c"]
    x, y = layout.centres["b"]
    assert bend_y == y
    assert abs(bend_x - x) > WIDTH / 2


def test_a_crossing_is_undone():
    sizes = dict.fromkeys(["a", "b", "x", "y"], WIDTH)
    layout = lay_out(sizes, [("a", "y"), ("b", "x")])
    place = {node: x for node, (x, _) in layout.centres.items()}
    assert (place["a"] < place["b"]) == (place["y"] < place["x"])


def test_what_must_lie_below_does():
    layout = lay_out(dict.fromkeys(["a", "b", "c"], WIDTH), [("a", "b")], below=[("b", "c")])
    assert layout.centres["c"][1] > layout.centres["b"][1]


def test_nothing_is_laid_out_as_nothing():
    assert lay_out({}, []).centres == {}
