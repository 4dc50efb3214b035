"""`shoal graph`: draw the computation graph of our own automatic differentiation."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.text import write_file
from shoal.config.flags import Flags
from shoal.errors import ConfigError

FORMS = ("svg", "dot", "mermaid")


@dataclass(frozen=True)
class GraphFlags(Flags):
    """Which graph, and where it is drawn."""

    static: bool = False
    """The graph as it is compiled, after all passes."""
    svg: Path | None = None
    """Write a picture for a browser or a page."""
    dot: Path | None = None
    """Write Graphviz's language, for `dot -Tpdf`."""
    mermaid: Path | None = None
    """Write Mermaid's language, which Markdown viewers draw."""


def run(given: Given[GraphFlags]) -> int:
    """Draw the computation graph of our own automatic differentiation.

    Without EXAMPLE, the command lists the examples. Without a file, it prints one operation per line. --svg=- writes to
    standard output.

    Start with:  shoal graph course --svg course.svg
    """
    static = given.flags.static
    asked: dict[str, Path] = {
        form: path for form in FORMS if (path := getattr(given.flags, form)) is not None
    }
    if not given.words:
        if asked or static:
            raise ConfigError("EXAMPLE is required", "`shoal graph` lists the examples.")
        text.show(_listed())
        text.next_step("shoal", "graph", "course", "--svg", "course.svg")
        return 0
    from shoal.autograd import drawing
    from shoal.autograd.drawn_examples import example
    from shoal.autograd.static.passes import PASSES

    name = given.words[0]
    graph = example(name)
    for improve in PASSES.values() if static else ():
        graph = improve(graph)
    if not asked:
        text.show(graph.listing())
        return 0
    title = f"{name}, compiled" if static else name
    forms = {"svg": partial(drawing.svg, title=title), "dot": drawing.dot, "mermaid": drawing.mermaid}
    drawings = {form: forms[form](graph) for form in asked}
    for form, path in asked.items():
        if str(path) == "-":
            text.show(drawings[form].rstrip("\n"))
        else:
            write_file(path, drawings[form])
            text.show(str(path))
    return 0


def _listed() -> str:
    from shoal.autograd.drawn_examples import EXAMPLES

    width = max(map(len, EXAMPLES))
    return "\n".join(
        f"{text.bold(f'{name:{width}}')}  {(make.__doc__ or '').splitlines()[0]}"
        for name, make in EXAMPLES.items()
    )


COMMAND = Command("graph", run, GraphFlags, words="[EXAMPLE]")
