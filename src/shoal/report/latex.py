"""A table as LaTeX, for a paper: rules of the package booktabs, nothing else that LaTeX does not have by itself."""

import re
from collections.abc import Sequence

from shoal.printable import printable

_LETTERS = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "×": r"$\times$", "≈": r"$\approx$", "≤": r"$\leq$", "−": "$-$", "–": "--", "†": r"$\dagger$",
    "\u00a0": "~",
}  # fmt: skip


def to_latex(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int], caption: str
) -> str:
    r"""A table over the width of the page; columns in `right` stand to the right.

    >>> print(to_latex(["run", "test (%)"], [["top_k †", "97.2 ± 0.3"]], frozenset({1}), "Means"))
    % \usepackage{booktabs}
    \begin{table*}
      \centering
      \caption{Means}
      \begin{tabular}{@{}lr@{}}
        \toprule
        run & test (\%) \\
        \midrule
        top\_k $\dagger$ & 97.2 $\pm$ 0.3 \\
        \bottomrule
      \end{tabular}
    \end{table*}
    <BLANKLINE>
    """
    columns = "".join("r" if number in right else "l" for number in range(len(header)))
    lines = [" & ".join(map(escaped, cells)) + r" \\" for cells in (header, *rows)]
    inside = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table*}",
            r"  \centering",
            rf"  \caption{{{escaped(caption)}}}",
            rf"  \begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            *(f"    {line}" for line in inside),
            r"  \end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def escaped(text: str) -> str:
    r"""Text as LaTeX shows it: a minus before a number is a minus, and every other letter is itself.

    >>> escaped("a_b & 50 %: -0.3, 1e-04")
    'a\\_b \\& 50 \\%: $-$0.3, 1e-04'
    """
    words = (re.sub(r"^-(?=\d)", "−", word) for word in printable(text).split())
    return "".join(_LETTERS.get(letter, letter) for letter in " ".join(words))
