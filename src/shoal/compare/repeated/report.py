"""The report of a repeated comparison: the table, figures for the page and for a paper, and every run."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from shoal.compare.comparison_report import figure_of
from shoal.compare.repeated.figures import figures
from shoal.compare.repeated.rows import Place, Rows, as_data, rows_of
from shoal.compare.repeated.table import row_legend, row_notes, row_table
from shoal.compare.table import described, numbers_in
from shoal.compare.variants import Variant
from shoal.report.canvas import Drawing
from shoal.report.document import Block, Bullets, Code, Document, Folded, Paragraph, Table
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.index import linked
from shoal.report.latex import to_latex
from shoal.report.markdown import to_markdown
from shoal.report.plain_tables import records_to_csv
from shoal.words import Words


class Trained(NamedTuple):
    """What became of the runs of a comparison."""

    finished: list[Path]
    failed: dict[str, str]
    """Why, by the name of the variant."""


def judged_rows(
    trained: Trained, variants: Sequence[Variant], folder: Path, command: str, words: Words
) -> Rows:
    """Read the finished runs of these variants, and write the page about them: `command` made it."""
    from shoal.compare.machine import machine  # loads torch

    places = {each.name: Place(each.row, each.swept_from) for each in variants}
    rows = rows_of(trained.finished, places, trained.failed)
    drawings, columns = figures(rows, words)
    document = linked(_document(rows, drawings, command, machine(), words), folder)
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): pdf for name, pdf in columns.items()},
            PurePosixPath("tables/rows.csv"): records_to_csv([as_data(row, rows) for row in rows.rows]),
            PurePosixPath("tables/runs.csv"): records_to_csv(run_data(rows)),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )
    return rows


def run_data(rows: Rows) -> list[dict[str, object]]:
    """Every run as numbers."""
    keys = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss", "seconds")
    return [
        {
            "name": run.name,
            "row": row.name,
            "seed": run.config.seed,
            **{key: run.run.result.get(key) for key in keys},
            "bytes_sent": run.sent_bytes,
            "run": str(run.run.folder.path),
        }
        for row in rows.rows
        for run in row.runs
    ]


def latex_of_rows(rows: Rows, words: Words) -> str:
    """The table for a paper."""
    header, cells = row_table(rows, words)
    return to_latex(header, cells, numbers_in(cells), row_legend(rows, words))


def _document(
    rows: Rows, drawings: Mapping[str, Drawing], command: str, machine: Mapping[str, str], words: Words
) -> Document:
    first = rows.reference.runs[0].config
    header, cells = row_table(rows, words)
    noted = row_notes(rows, words)
    facts = [[words(f"machine.{key}"), value] for key, value in machine.items()]
    blocks: list[Block] = [
        *([Bullets(noted)] if noted else []),
        Table(words("repeated.caption"), header, cells, numbers_in(cells)),
        Paragraph(row_legend(rows, words)),
        *(figure_of(name, drawing, words(f"repeated.{name}_caption")) for name, drawing in drawings.items()),
        Folded(words("repeated.every_run"), [_runs(rows, words)]),
        Folded(
            words("section.measured"),
            [
                Code(command, language="sh"),
                Paragraph(words("repeated.measured")),
                Table(words("table.machine"), ["", ""], facts),
            ],
        ),
    ]
    names = {"model": first.model.name, "data": first.data.name}
    title = words("repeated.title", rows=len(rows.rows), seeds=rows.seeds, **names)
    return Document(title, words.lang, blocks, summary=_summary(rows, words))


def _runs(rows: Rows, words: Words) -> Table:
    measure = rows.measure
    header = [words(f"column.{column}") for column in ("run", "how", "folder")]
    number = words(f"repeated.{rows.split}_{measure.key}")
    found = [
        (run, measure.of(run, rows.split), described(run.config, words))
        for row in rows.rows
        for run in row.runs
    ]
    cells = [
        [run.name, how, f"`{run.run.folder.path}`", "–" if value is None else format(value, measure.spec)]
        for run, value, how in found
    ]
    return Table(words("table.the_runs"), [*header, number], cells, frozenset({3}))


def _summary(rows: Rows, words: Words) -> str:
    """The verdicts by kind, for lists of reports."""
    judged = [rows.verdict(row) for row in rows.rows]
    counts = {kind: judged.count(kind) for kind in ("better", "worse", "same", "undecided")}
    return words("repeated.summary", reference=rows.reference.name, **counts)
