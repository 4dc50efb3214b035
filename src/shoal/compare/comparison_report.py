"""The report of a comparison: findings, table and figures, the rest folded; as files in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from shoal.compare.causes import MATTERS, SLOWER
from shoal.compare.comparison import KINDS, ComparedRun, Comparison, other_settings
from shoal.compare.equality import BOUND
from shoal.compare.remark import Remark, notes, percent
from shoal.compare.run_figures import captions, loss_figure, time_figure
from shoal.compare.table import (
    EQUALITY_AT,
    as_data,
    described,
    full_table,
    legend,
    metric_names,
    metric_rows,
    numbers_in,
    short_legend,
    short_table,
    worker_rows,
)
from shoal.events.clocks import BUSY
from shoal.report.canvas import Drawing
from shoal.report.document import Block, Bullets, Code, Document, Figure, Folded, Judgement, Paragraph, Table
from shoal.report.findings import SPREADS
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.index import linked
from shoal.report.markdown import to_markdown
from shoal.report.plain_tables import to_csv
from shoal.report.staleness import Staleness, staleness_of
from shoal.report.svg import for_file
from shoal.words import Words

MOST_FINDINGS = 3
"""So many findings are at the top of the page."""
SERVER_COLUMNS = ("run", "rank", "pushes", "dropped", "staleness", "lost_after")


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
    runs = [[" ".join(map(str, v)) if isinstance(v, list) else v for v in row.values()] for row in data]  # pyright: ignore[reportUnknownArgumentType]
    write_document(folder, document, drawings, {"runs": to_csv(list(data[0]), runs)}, comparison)


def write_document(
    folder: Path,
    document: Document,
    drawings: Mapping[str, Drawing],
    tables: Mapping[str, str],
    comparison: Comparison,
    svgs: Mapping[str, str] | None = None,
) -> None:
    """Write figures, tables, also one of all workers, and a document about these runs; the page appears last."""
    workers = to_csv(("run", "rank", *KINDS, "step (ms, mean)"), worker_rows(comparison.entries))
    tables, document = {**tables, "workers": workers}, linked(document, folder)
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): drawing.pdf for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.svg"): for_file(svg) for name, svg in (svgs or {}).items()},
            **{PurePosixPath(f"tables/{name}.csv"): table for name, table in tables.items()},
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
    delays = [
        words("cell.unknown") if entry.not_scheduled is None else percent(entry.not_scheduled)
        for entry in entries
    ]
    runs = [
        [entry.name, described(entry.config, words), delay, f"`{entry.run.folder.path}`"]
        for entry, delay in zip(entries, delays, strict=True)
    ]
    runs_header = [words(f"column.{column}") for column in ("run", "how", "not_scheduled", "folder")]
    limits = {"matters": percent(MATTERS), "busy": percent(BUSY)}
    thresholds = words("measured.thresholds", slower=SLOWER, spreads=SPREADS, **limits)
    equality = words("measured.equality", bound=BOUND)
    judged = [Judgement(r.tone, r.word, r.claim, r.numbers, r.advice) for r in remarks]
    columns, rows = short_table(comparison, words)
    caption = captions(comparison, words)
    facts = [[words(f"machine.{key}"), value] for key, value in machine.items()]
    blocks: list[Block] = [
        *judged[:MOST_FINDINGS],
        *([Bullets(noted)] if noted else []),
        Table(words("table.first"), columns, rows, numbers_in(rows)),
        Paragraph(short_legend(comparison, words)),
        *(figure_of(name, drawings[name], caption[name]) for name in ("time", "loss")),
        *([Folded(words("section.remarks"), judged[MOST_FINDINGS:])] if judged[MOST_FINDINGS:] else []),
        Folded(
            words("section.numbers"),
            [
                *_results(comparison, words),
                *_metrics(comparison, words),
                Paragraph(legend(comparison, words)),
            ],
        ),
        Folded(
            words("section.workers"),
            [workers_table("workers", entries, words), *server_blocks(entries, words)],
        ),
        Folded(
            words("section.measured"),
            [
                Paragraph(_opening(first, entries, words)),
                Code(command, language="sh"),
                Bullets([waiting_and_moving(entries, words), thresholds, equality]),
                Table(words("table.the_runs"), runs_header, runs),
                *([Table(words("table.machine"), ["", ""], facts)] if facts else []),
            ],
        ),
    ]
    names = {"model": first.config.model.name, "data": first.config.data.name}
    return Document(words("title", count=len(entries), **names), words.lang, blocks)


def _results(comparison: Comparison, words: Words) -> list[Block]:
    """Two tables, each narrow enough for a page and for paper: accuracy, speed and bytes; then equality."""
    columns, rows = full_table(comparison, words)
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


def server_blocks(entries: Sequence[ComparedRun], words: Words) -> list[Block]:
    """A table of all workers, and the distribution of staleness of each run; nothing without such runs."""
    found: list[tuple[str, Staleness]] = []
    for entry in entries:
        progress = staleness_of(entry.run.folder, entry.workers) if entry.config.num_servers else None
        if progress is not None:
            found.append((entry.name, progress))
    if not found:
        return []
    rows = [
        (
            name,
            str(worker.rank),
            f"{worker.pushes:,}",
            f"{worker.dropped:,}",
            f"{worker.staleness:.2f}",
            "" if worker.lost_after is None else words("cell.updates", count=worker.lost_after),
        )
        for name, progress in found
        for worker in progress.workers
    ]
    header = [words(f"column.{column}") for column in SERVER_COLUMNS]
    return [
        Table(words("table.pushes"), header, rows, frozenset(range(1, len(header)))),
        Bullets([_histogram(name, progress, words) for name, progress in found]),
    ]


def _histogram(name: str, progress: Staleness, words: Words) -> str:
    """The distribution of staleness on one line."""
    shares = [
        words(
            "measured.share",
            value=words("measured.or_more", value=value) if and_more else value,
            percent=percent(share),
        )
        for value, share, and_more in progress.shares()
    ]
    numbers = {"mean": progress.mean, "most": max(progress.histogram)}
    return words("measured.staleness", name=name, shares=shares, **numbers)
