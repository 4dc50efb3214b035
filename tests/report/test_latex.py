"""Tables as LaTeX: every row has its columns, every group ends, and no letter of a name is a command."""

import re

import pytest

from shoal.report.latex import escaped, to_latex

NAMES = ["a_b & c%", "50 % #1 {x}", r"back\slash~^", "† ± 1 × 2 ≈ 3 ≤ 4 − 5 – 6", "$x$ <y> |z|"]
SPECIAL = re.compile(r"(?<!\\)[&%$#_{}~^]")


def commands_removed(text):
    """What is left of a text of LaTeX without escapes, math and empty groups."""
    return re.sub(r"\\[&%$#_{}]|\$[^$]*\$|\\text\w+\{\}", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_no_letter_of_a_name_has_a_meaning_to_latex(name):
    left = commands_removed(escaped(name))
    assert not SPECIAL.search(left)
    assert "\\" not in left


def test_every_row_has_every_column_and_every_group_ends():
    text = to_latex(["run", "x (%)"], [[name, "-0.5 ± 0.1"] for name in NAMES], frozenset({1}), "One & two")
    lines = [line.strip() for line in text.splitlines()]
    rows = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    rows.remove(r"\midrule")
    assert len(rows) == 1 + len(NAMES)
    for row in rows:
        assert row.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", row)) == 1
    assert r"$-$0.5 $\pm$ 0.1" in rows[-1]
    for environment in ("table*", "tabular"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 1
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
