"""`shoal graph`: draw the computation graph of our own automatic differentiation."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.autograd.graph import Graph

FORMS = ("--svg", "--dot", "--mermaid")


def run(given: Given) -> int:
    """List the examples, print one, or draw it."""
    asked = {flag: given[flag] for flag in FORMS if given[flag] is not None}
    if not given.words:
        if given.present:
            raise ConfigError("EXAMPLE is required", "`shoal graph` lists the examples.")
        text.show(_listed())
        return 0
    name = given.words[0]
    graph = _graph(name, compiled=given["--static"])
    if not asked:
        text.show(graph.listing())
        return 0
    title = f"{name}, compiled" if given["--static"] else name
    drawings = {flag: _drawn(flag, graph, title) for flag in asked}
    for flag, place in asked.items():
        if place == "-":
            text.show(drawings[flag].rstrip("\n"))
        else:
            _write(Path(place), drawings[flag])
            text.show(place)
    return 0


def _graph(name: str, compiled: bool) -> "Graph":
    from shoal.autograd.examples import example
    from shoal.autograd.passes import PASSES

    graph = example(name)
    for improve in PASSES.values() if compiled else ():
        graph = improve(graph)
    return graph


def _drawn(flag: str, graph: "Graph", title: str) -> str:
    from shoal.autograd import draw

    return {
        "--svg": lambda: draw.svg(graph, title),
        "--dot": lambda: draw.dot(graph),
        "--mermaid": lambda: draw.mermaid(graph),
    }[flag]()


def _write(path: Path, content: str) -> None:
    """Write a temporary file and rename it: a reader sees the old file or the new one, never half of it."""
    if path.exists() and not path.is_file():  # a folder, or a device that a rename would replace
        raise ConfigError(f"cannot write {path}: it exists and is not a file", "Choose another name.")
    try:
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=path.parent) as beside:
            whole = Path(beside) / "graph"
            whole.write_text(content, encoding="utf-8")
            whole.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", "Choose another file, in a folder that exists."
        ) from None


def _listed() -> str:
    from shoal.autograd.examples import EXAMPLES

    width = max(map(len, EXAMPLES))
    return "\n".join(
        f"{text.bold(f'{name:{width}}')}  {(make.__doc__ or '').splitlines()[0]}"
        for name, make in EXAMPLES.items()
    )


COMMAND = Command(
    "graph",
    "Draw the computation graph of our own automatic differentiation.",
    run,
    words="[EXAMPLE]",
    flags=(
        Flag("--static", "The graph as it is compiled, after all passes.", bool, False),
        Flag("--svg", "Write a picture for a browser or a page.", value="FILE"),
        Flag("--dot", "Write Graphviz's language, for `dot -Tpdf`.", value="FILE"),
        Flag("--mermaid", "Write Mermaid's language, which Markdown viewers draw.", value="FILE"),
    ),
    details=lambda: (
        "Without EXAMPLE, the command lists the examples. Without a file, it prints one operation per line. "
        "--svg=- writes to standard output.",
        "Start with:  shoal graph course --svg course.svg",
    ),
)
