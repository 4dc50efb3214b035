"""Reports as data, and how they are written: Markdown, HTML, tables. Without torch."""

from shoal.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Formula,
    Heading,
    Judgement,
    Link,
    Links,
    Paragraph,
    Table,
)
from shoal.report.folder import claimed, free_beside, report_folder, write_files
from shoal.report.html import to_html
from shoal.report.index import linked
from shoal.report.markdown import to_markdown
from shoal.report.plain_tables import Records, aligned, records_to_csv, width
from shoal.report.words import page_words

__all__ = [
    "Block",
    "Bullets",
    "Code",
    "Document",
    "Figure",
    "Formula",
    "Heading",
    "Judgement",
    "Link",
    "Links",
    "Paragraph",
    "Records",
    "Table",
    "aligned",
    "claimed",
    "free_beside",
    "linked",
    "page_words",
    "records_to_csv",
    "report_folder",
    "to_html",
    "to_markdown",
    "width",
    "write_files",
]
