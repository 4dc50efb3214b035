"""The files of a comparison's report: figures, tables, and the document as Markdown and as a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from shoal.compare.comparison import Comparison
from shoal.compare.document import WORKER_HEADER, compare_document
from shoal.compare.figures import loss_figure, time_figure
from shoal.compare.table import as_data, worker_rows
from shoal.compare.verdict import Remark
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv


def write_report(
    folder: Path, comparison: Comparison, remarks: Sequence[Remark], command: str, machine: Mapping[str, str]
) -> None:
    """Write all of it into a folder; the page appears last."""
    drawings = {"loss": loss_figure(comparison), "time": time_figure(comparison)}
    document = compare_document(comparison, remarks, drawings, command, machine)
    data = [as_data(entry, comparison) for entry in comparison.entries]
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): drawing.pdf for name, drawing in drawings.items()},
            PurePosixPath("tables/runs.csv"): to_csv(list(data[0]), [list(row.values()) for row in data]),
            PurePosixPath("tables/workers.csv"): to_csv(WORKER_HEADER, worker_rows(comparison.entries)),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )
