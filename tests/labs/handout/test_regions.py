import pytest

from shoal.report.plain_tables import width
from shoal_labs.handout.regions import cut, keep, tasks, without_linter_marks

SOURCE = """# ruff: noqa: N999
def double(x):
    if x:
        # task: double
        y = 2 * x  # pyright: ignore[reportWhatever]
        return y
        # end: double
    return 0
"""


def test_a_cut_region_raises_below_its_sentence_and_holds_no_solution():
    skeleton = cut(SOURCE, {"double": f"{'a long sentence ' * 8}{'很长的一句话' * 20}"})
    assert "        # Task double: a long sentence" in skeleton
    assert max(map(width, skeleton.splitlines())) <= 100
    assert "2 * x" not in skeleton
    scope = {}
    exec(skeleton, scope)
    assert scope["double"](0) == 0
    with pytest.raises(NotImplementedError, match="^Task double: "):
        scope["double"](1)


def test_a_kept_region_is_the_code_without_the_marks():
    kept = keep(SOURCE)
    assert "#" not in kept
    scope = {}
    exec(kept, scope)
    assert scope["double"](21) == 42
    assert tasks(SOURCE) == ["double"]


@pytest.mark.parametrize(
    "broken",
    ["# task: a\n", "# end: a\n", "# task: a\n# task: b\n# end: b\n# end: a\n", "# task: a\n# end: b\n"],
)
def test_regions_that_do_not_match_are_refused(broken):
    with pytest.raises(ValueError, match="region"):
        keep(broken)


def test_blank_lines_stay():
    assert without_linter_marks("a = 1\n\nb = 2  # noqa: X\n") == "a = 1\n\nb = 2\n"
