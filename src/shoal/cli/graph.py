"""`shoal graph`: what our own automatic differentiation computes, drawn."""

import tempfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.options import no_more, split_options
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.autograd.static.graph import Graph

USAGE = "shoal graph EXAMPLE [--static] [--svg FILE] [--dot FILE] [--mermaid FILE]"
SWITCHES = {"--static": "as it runs when compiled: after all passes, instead of as it is written"}
FILES = {
    "--svg": "a picture that needs nothing else, for a browser or a page",
    "--dot": "Graphviz's language, for `dot -Tpdf`",
    "--mermaid": "Mermaid's language, which Markdown viewers draw",
}
"""What can be written; `--svg=-` writes to standard output."""


def run(argv: Sequence[str]) -> int:
    """List the examples, or draw one."""
    options, words = split_options(argv, switches=(*SWITCHES, "--help", "-h"), values=tuple(FILES))
    if options.has("--help", "-h"):
        text.page(_help())
        return 0
    _refuse_flags(words)
    if not words:
        for flag in options.values:
            raise ConfigError(f"{flag} of which example?", f"Usage: {USAGE}")
        text.show(_listed())
        return 0
    name, *rest = words
    no_more(rest, USAGE)

    graph = _graph(name, compiled=options.has("--static"))
    asked = {flag: place for flag in FILES if (place := options.value(flag)) is not None}
    if not asked:
        text.show(graph.listing())
        return 0
    title = f"{name}, compiled" if options.has("--static") else name
    drawings = {flag: _drawn(flag, graph, title) for flag in asked}
    for flag, place in asked.items():
        if place == "-":
            text.show(drawings[flag].rstrip("\n"))
        else:
            _write(Path(place), drawings[flag])
            text.show(place)
    return 0


def _graph(name: str, compiled: bool) -> "Graph":
    from shoal.autograd.drawing.examples import example
    from shoal.autograd.static.passes import PASSES

    graph = example(name)
    for improve in PASSES.values() if compiled else ():
        graph = improve(graph)
    return graph


def _drawn(flag: str, graph: "Graph", title: str) -> str:
    from shoal.autograd import drawing

    return {
        "--svg": lambda: drawing.svg(graph, title),
        "--dot": lambda: drawing.dot(graph),
        "--mermaid": lambda: drawing.mermaid(graph),
    }[flag]()


def _write(path: Path, content: str) -> None:
    """Write beside the place and rename: a reader sees the old file or the new one, never half of it."""
    if path.exists() and not path.is_file():  # a folder, or a device that a rename would do away with
        raise ConfigError(f"cannot write {path}: it is there already, and not a file", "Choose another name.")
    try:
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=path.parent) as beside:
            whole = Path(beside) / "graph"
            whole.write_text(content, encoding="utf-8")
            whole.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", "Choose another file, in a folder that exists."
        ) from None


def _refuse_flags(words: Sequence[str]) -> None:
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            close = get_close_matches(flag, [*SWITCHES, *FILES], n=1, cutoff=0.5)
            guess = f": did you mean '{close[0]}'?" if close else ""
            raise ConfigError(f"unknown flag '{flag}'{guess}", "`shoal graph --help` lists the flags.")


def _listed() -> str:
    from shoal.autograd.drawing.examples import EXAMPLES

    width = max(map(len, EXAMPLES))
    return "\n".join(
        f"{text.bold(f'{name:{width}}')}  {(make.__doc__ or '').splitlines()[0]}"
        for name, make in EXAMPLES.items()
    )


def _help() -> str:
    flags = {**FILES, **SWITCHES}
    width = max(map(len, flags))
    rows = "\n".join(f"  {flag:{width}}  {sentence}" for flag, sentence in flags.items())
    return (
        f"{text.bold('shoal graph')}: what our own automatic differentiation computes, drawn\n\n"
        f"Usage: {USAGE}\n       shoal graph                                   lists the examples\n\n{rows}\n\n"
        f"Without a file the operations are printed, a line each; --svg=- writes to standard output.\n\n"
        f"Begin with:  shoal graph course --svg course.svg"
    )
