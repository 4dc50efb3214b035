"""`shoal trace`: the spans of all workers of a run as one file for a trace viewer."""

from dataclasses import dataclass
from pathlib import Path

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.errors import ConfigError
from shoal.files import complete_file


@dataclass(frozen=True)
class TraceFlags(Flags):
    """Where the trace goes."""

    out: Path | None = None
    """File of the trace (default RUN/trace.json)."""


def run(given: Given[TraceFlags]) -> int:
    """Write a trace of all workers on one clock, for ui.perfetto.dev or chrome://tracing.

    RUN is a run folder, also of an unfinished run. The trace has the steps that kept their spans: every 20th, or all
    with `shoal train --trace`. Arrows join the calls of different workers.
    """
    from shoal.report.step_index import read_indices
    from shoal.report.timeline import refuse_without_spans
    from shoal.report.trace import write_trace

    folder = Path(given.words[0])
    indices, problems = read_indices(folder)
    refuse_without_spans(folder, indices, problems)
    path = given.flags.out or folder / "trace.json"
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists", "Choose another file with --out.")
    for problem in problems:
        text.warn(f"warning: {problem}")
    try:
        with complete_file(path) as file:
            steps = write_trace(file, indices)
    except OSError as error:
        hint = "Choose another file with --out, in a folder that exists."
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint) from None
    kept = len(set[int]().union(*(index.kept for index in indices)))
    text.show(f"{path}: {steps:,} of {kept:,} steps with spans; open it in https://ui.perfetto.dev")
    return 0


COMMAND = Command("trace", run, TraceFlags, words="RUN")
"""`shoal trace RUN`."""
