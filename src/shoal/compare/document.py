"""The report of a comparison: verdict, table, figures, how it was measured; as files in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from shoal.compare.comparison import KINDS, ComparedRun, Comparison, other_settings
from shoal.compare.figures import captions, loss_figure, time_figure
from shoal.compare.notes import notes
from shoal.compare.remark import Remark, percent
from shoal.compare.server_progress import server_blocks
from shoal.compare.table import (
    EQUALITY_AT,
    as_data,
    described,
    header,
    legend,
    metric_names,
    metric_rows,
    table_rows,
    worker_rows,
)
from shoal.compare.verdict import MATTERS, SLOWER
from shoal.compare.weights import FIRST_STEP_BOUND
from shoal.events.clocks import BUSY
from shoal.report.canvas import Drawing
from shoal.report.document import Block, Bullets, Code, Document, Figure, Heading, Judgement, Paragraph, Table
from shoal.report.findings import SPREADS
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv
from shoal.words import Words

WORKERS_CSV = ("run", "rank", *KINDS, "step (ms, mean)")


def write_report(
    folder: Path,
    comparison: Comparison,
    remarks: Sequence[Remark],
    command: str,
    machine: Mapping[str, str],
    words: Words,
) -> None:
    """Write figures, tables, and the document as Markdown and as a page, which appears last.

    The names of columns in tables for other programs are the same in every language.
    """
    drawings = {"loss": loss_figure(comparison, words), "time": time_figure(comparison, words)}
    document = _document(comparison, remarks, drawings, command, machine, words)
    data = [as_data(entry, comparison, words) for entry in comparison.entries]
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): drawing.pdf for name, drawing in drawings.items()},
            PurePosixPath("tables/runs.csv"): to_csv(
                list(data[0]), [list(map(_cell, row.values())) for row in data]
            ),
            PurePosixPath("tables/workers.csv"): to_csv(WORKERS_CSV, worker_rows(comparison.entries)),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def _document(
    comparison: Comparison,
    remarks: Sequence[Remark],
    drawings: Mapping[str, Drawing],
    command: str,
    machine: Mapping[str, str],
    words: Words,
) -> Document:
    entries = comparison.entries
    first = comparison.reference or entries[0]
    noted = notes(comparison, words)
    runs = [
        [entry.name, described(entry.config, words), _delay(entry, words), f"`{entry.run.folder.path}`"]
        for entry in entries
    ]
    runs_header = [words(f"column.{column}") for column in ("run", "how", "not_scheduled", "folder")]
    blocks: list[Block] = [
        Paragraph(_opening(first, entries, words)),
        Code(command, language="sh"),
        Heading(words("section.verdict")),
        *(Judgement(r.tone, r.word, r.claim, r.numbers, r.advice) for r in remarks),
        *([Bullets(noted)] if noted else []),
        Heading(words("section.results")),
        *_results(comparison, words),
        *_metrics(comparison, words),
        Paragraph(legend(comparison, words)),
        *(figure_of(name, drawings[name], caption) for name, caption in captions(comparison, words).items()),
        workers_table("workers", entries, words),
        *server_blocks(entries, words),
        Heading(words("section.measured")),
        Bullets([waiting_and_moving(entries, words), _thresholds(words), _equality(words)]),
        Table(words("table.the_runs"), runs_header, runs),
        *([Table(words("table.machine"), ["", ""], _machine(machine, words))] if machine else []),
    ]
    names = {"model": first.config.model.name, "data": first.config.data.name}
    return Document(words("title", count=len(entries), **names), words.lang, blocks)


def _results(comparison: Comparison, words: Words) -> list[Block]:
    """Two tables, each narrow enough for a page and for paper: accuracy, speed and bytes; then equality."""
    columns, rows = header(words), table_rows(comparison, words)
    parts = {"runs": range(1, EQUALITY_AT), "equality": range(EQUALITY_AT, len(columns))}
    return [
        Table(
            words(f"table.{caption}"),
            [columns[0], *(columns[each] for each in part)],
            [[row[0], *(row[each] for each in part)] for row in rows],
            frozenset(range(1, len(part) + 1)),
        )
        for caption, part in parts.items()
    ]


def _metrics(comparison: Comparison, words: Words) -> list[Block]:
    names = metric_names(comparison)
    if not names:
        return []
    rows = [
        [entry.name, *cells] for entry, cells in zip(comparison.entries, metric_rows(comparison), strict=True)
    ]
    return [
        Table(
            words("table.metrics"), [words("column.run"), *names], rows, frozenset(range(1, len(names) + 1))
        )
    ]


def _opening(first: ComparedRun, entries: Sequence[ComparedRun], words: Words) -> str:
    config = first.config
    is_one_task = not any(
        other_settings(entry, first) or entry.config.partition != config.partition for entry in entries
    )
    return words(
        "opening" if is_one_task else "opening_other",
        name=first.name,
        steps=first.run.result["steps"],
        batch=config.train.batch_size,
        optimizer=config.optimizer.name,
    )


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]


def _delay(entry: ComparedRun, words: Words) -> str:
    return words("cell.unknown") if entry.not_scheduled is None else percent(entry.not_scheduled)


def _machine(facts: Mapping[str, str], words: Words) -> list[list[str]]:
    return [[words(f"machine.{key}"), value] for key, value in facts.items()]


def _thresholds(words: Words) -> str:
    limits = {"matters": percent(MATTERS), "busy": percent(BUSY)}
    return words("measured.thresholds", slower=SLOWER, spreads=SPREADS, **limits)


def _equality(words: Words) -> str:
    return words("measured.equality", bound=f"{FIRST_STEP_BOUND:.0e}")


def workers_table(caption: str, entries: Sequence[ComparedRun], words: Words) -> Table:
    """Where the time of each worker went."""
    columns = ["column.run", "column.rank", *(f"kind.{kind}" for kind in KINDS), "column.step_ms"]
    names = [words(column) for column in columns]
    return Table(words(f"table.{caption}"), names, worker_rows(entries), frozenset(range(1, len(names))))


def waiting_and_moving(entries: Sequence[ComparedRun], words: Words) -> str:
    """How waiting and moving were distinguished, and on which steps."""
    ranks = [rank for entry in entries for rank in entry.ranks]
    kept, steps = sum(rank.steps_kept for rank in ranks), sum(rank.steps for rank in ranks)
    measured = words("measured.every_step")
    if kept < steps:
        measured = words("measured.some_steps", kept=kept, steps=steps)
    return words("measured.waiting", steps=measured)


def figure_of(name: str, drawing: Drawing, caption: str) -> Figure:
    """A figure of the report's folder."""
    return Figure(
        PurePosixPath(f"figures/{name}.png"), drawing.wide_svg, caption, caption, drawing.narrow_svg
    )
