"""The list of all reports: robust to whatever else is in the folder."""

import os

import pytest

from shoal.report.document import Document, Judgement, Paragraph
from shoal.report.html import to_html
from shoal.report.index import head_of, linked, write_index


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here, name, title="a run", summary="95 % right", lang="en", seconds=0):
    folder = here / "reports" / name
    folder.mkdir(parents=True)
    document = linked(Document(title, lang, [Paragraph("text")], summary), folder)
    (folder / "report.html").write_text(to_html(document), encoding="utf-8")
    os.utime(folder / "report.html", (1e9 + seconds, 1e9 + seconds))
    write_index(folder)
    return folder


def index_of(here):
    return (here / "reports" / "index.html").read_text(encoding="utf-8")


def test_the_latest_report_is_first_with_its_title_time_and_result(here):
    written(here, "one", "first <run>", "0.5 & more", seconds=1)
    written(here, "two", "second", seconds=2)
    page = index_of(here)
    assert page.index('href="two/report.html">second') < page.index(
        'href="one/report.html">first &lt;run&gt;'
    )
    assert "2001-09-09" in page
    assert "0.5 &amp; more" in page


def test_a_page_leads_to_the_list_and_back(here):
    folder = written(here, "it")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert 'href="../index.html"' in page
    assert (folder / "../index.html").exists()


def test_the_result_of_a_page_without_a_summary_is_its_first_claim(here):
    document = Document(
        "t", "en", [Judgement("holds", "yes", "`ddp` is **fast**", ""), Judgement("fails", "no", "b", "")]
    )
    page = here / "report.html"
    page.write_text(to_html(document), encoding="utf-8")
    head = head_of(page)
    assert (head.result, head.is_ours) == ("ddp is fast", True)


def test_what_is_no_report_is_left_out(here):
    reports = here / "reports"
    for name, content in {"empty": b"", "binary": b"\xff\xfe<title", "untitled": b"<html><body>x"}.items():
        (reports / name).mkdir(parents=True)
        (reports / name / "report.html").write_bytes(content)
    (reports / "folder" / "report.html").mkdir(parents=True)
    (reports / "pipe").mkdir()
    os.mkfifo(reports / "pipe" / "report.html")
    (reports / "dangling").mkdir()
    (reports / "dangling" / "report.html").symlink_to("nowhere")
    written(here, "good", "the only one")
    assert index_of(here).count("/report.html") == 1


def test_a_foreign_page_is_listed_as_text_and_never_run(here):
    folder = here / "reports" / "javascript:alert(1)"
    folder.mkdir(parents=True)
    foreign = '<html><title>x &lt;script&gt;</title><meta name="description" content="<script>1</script>">'
    (folder / "report.html").write_text(foreign)
    written(here, "good")
    assert "<script" not in index_of(here)
    assert 'href="javascript%3Aalert%281%29/report.html"' in index_of(here)


def test_an_index_of_somebody_else_stays(here):
    (here / "reports").mkdir()
    (here / "reports" / "index.html").write_text("<title>mine</title>")
    written(here, "good")
    assert index_of(here) == "<title>mine</title>"


def test_a_report_elsewhere_gets_no_list(here):
    folder = here / "elsewhere" / "it"
    folder.mkdir(parents=True)
    document = Document("t", "en", [Paragraph("x")])
    assert linked(document, folder) is document
    (folder / "report.html").write_text(to_html(document), encoding="utf-8")
    write_index(folder)
    assert not (here / "elsewhere" / "index.html").exists()


def test_the_list_is_in_the_language_of_the_latest_report(here):
    written(here, "it", lang="zh")
    assert 'lang="zh-Hans"' in index_of(here)
    assert "报告" in index_of(here)
