"""The report of a comparison: verdict, table, figures, how it was measured; as files in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from shoal.compare.comparison import KINDS, ComparedRun, Comparison
from shoal.compare.equality import EQUALITY
from shoal.compare.figures import loss_figure, time_figure
from shoal.compare.remark import Remark
from shoal.compare.server_progress import server_blocks
from shoal.compare.table import (
    HEADER,
    LEGEND,
    as_data,
    described,
    metric_names,
    metric_rows,
    table_rows,
    worker_rows,
)
from shoal.compare.verdict import THRESHOLDS
from shoal.report.canvas import Drawing
from shoal.report.document import Block, Bullets, Code, Document, Figure, Heading, Judgement, Paragraph, Table
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv

WORKER_HEADER = ("run", "rank", *KINDS, "step (ms, mean)")
CAPTIONS = {
    "loss": "Training loss against steps and against time. Runs that compute the same coincide on the left, where "
    "their colours take turns along one line; on the right the faster one is further left.",
    "time": "Where the time of a step goes, for each worker. A worker that waits is not slow itself: look for the "
    "worker of the same run that does not wait.",
}


def write_report(
    folder: Path, comparison: Comparison, remarks: Sequence[Remark], command: str, machine: Mapping[str, str]
) -> None:
    """Write figures, tables, and the document as Markdown and as a page, which appears last."""
    drawings = {"loss": loss_figure(comparison), "time": time_figure(comparison)}
    document = _document(comparison, remarks, drawings, command, machine)
    data = [as_data(entry, comparison) for entry in comparison.entries]
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): drawing.pdf for name, drawing in drawings.items()},
            PurePosixPath("tables/runs.csv"): to_csv(
                list(data[0]), [list(map(_cell, row.values())) for row in data]
            ),
            PurePosixPath("tables/workers.csv"): to_csv(WORKER_HEADER, worker_rows(comparison.entries)),
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
) -> Document:
    entries = comparison.entries
    first = comparison.reference or entries[0]
    runs = [
        [entry.name, described(entry.config), _delay(entry), f"`{entry.run.folder.path}`"]
        for entry in entries
    ]
    blocks: list[Block] = [
        Paragraph(_opening(first)),
        Code(command, language="sh"),
        Heading("Verdict"),
        *(Judgement(r.tone, r.word, r.claim, r.numbers, r.advice) for r in remarks),
        *([Bullets(comparison.notes)] if comparison.notes else []),
        Heading("Results"),
        Table("All runs", HEADER, table_rows(comparison), frozenset(range(1, len(HEADER)))),
        *_metrics(comparison),
        Paragraph(LEGEND),
        *(figure_of(name, drawing) for name, drawing in drawings.items()),
        Table(
            "Where the time of each worker went", WORKER_HEADER, worker_rows(entries), frozenset(range(1, 7))
        ),
        *server_blocks(entries),
        Heading("How it was measured"),
        Bullets([waiting_and_moving(entries), THRESHOLDS, EQUALITY]),
        Table("The runs", ["run", "how", "ready but not scheduled", "folder"], runs),
        *([Table("The machine", ["", ""], [[*item] for item in machine.items()])] if machine else []),
    ]
    title = f"{first.config.model.name} on {first.config.data.name}, trained in {len(entries)} ways"
    return Document(title, "en", blocks)


def _metrics(comparison: Comparison) -> list[Block]:
    names = metric_names(comparison)
    if not names:
        return []
    rows = [
        [entry.name, *cells] for entry, cells in zip(comparison.entries, metric_rows(comparison), strict=True)
    ]
    return [Table("Metrics on the test set", ["run", *names], rows, frozenset(range(1, len(names) + 1)))]


def _opening(first: ComparedRun) -> str:
    config = first.config
    return (
        f"{first.run.result['steps']} steps of {config.train.batch_size} samples with {config.optimizer.name}: every "
        "run starts from the same weights and takes the same batches; only how the work of a batch is divided differs."
    )


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]


def _delay(entry: ComparedRun) -> str:
    return "unknown" if entry.not_scheduled is None else f"{100 * entry.not_scheduled:.0f} %"


def waiting_and_moving(entries: Sequence[ComparedRun]) -> str:
    """How waiting and moving were distinguished, and on which steps."""
    ranks = [rank for entry in entries for rank in entry.ranks]
    kept, steps = sum(rank.steps_kept for rank in ranks), sum(rank.steps for rank in ranks)
    some = f"{kept:,} of {steps:,} steps and taken for all (`--trace` keeps all)"
    return (
        "A worker waits in a call until the last worker has entered it, and moves for the rest of the call. The two "
        f"were measured on {'every step' if kept == steps else some}. The first two steps are left out: libraries are "
        "still being loaded."
    )


def figure_of(name: str, drawing: Drawing, caption: str = "") -> Figure:
    """A figure of the report's folder, with its caption of a comparison unless another is given."""
    caption = caption or CAPTIONS[name]
    return Figure(
        PurePosixPath(f"figures/{name}.png"), drawing.wide_svg, caption, caption, drawing.narrow_svg
    )
