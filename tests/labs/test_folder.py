import csv
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.report.document import Document
from shoal.report.findings import Finding, Measured
from shoal.report.folder import claimed, report_folder
from shoal.words import Phrase
from shoal_labs.folder import write_report
from shoal_labs.page.pictures import Pictures


def test_a_folder_that_was_asked_for_is_taken_and_another_is_named_after_lab_and_time():
    assert report_folder("here", "lab2") == Path("here")
    assert report_folder("", "lab2").match("reports/lab2-*-*")


def interrupted(folder, made=""):
    with claimed(folder):
        (folder / made).mkdir(exist_ok=True)
        raise KeyboardInterrupt


def test_a_lab_that_fails_leaves_no_empty_folder_and_keeps_what_was_made(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "empty")
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "full", made="runs")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_folder_in_use_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"), claimed(tmp_path):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_the_table_of_findings_has_one_number_in_each_cell(tmp_path):
    slow = Phrase("finding.ratio", {"link": Phrase("link.slow"), "ratio": Measured(1.5, 0.2, "seeds", 4)})
    finding = Finding(
        "near",
        {
            "ratios": (slow, "none"),
            "division": Phrase("division.dirichlet-0.1"),
            "ms": Measured(3.5, 0.0, "none", 2),
        },
        "holds",
    )
    write_report(tmp_path, Document("A page", "en", []), Pictures({}), {}, {"speed": [finding]})
    with (tmp_path / "tables" / "findings.csv").open(encoding="utf-8-sig") as file:
        rows = [(row["number"], row["value"], row["spread"]) for row in csv.DictReader(file)]
    assert rows == [
        ("ratios, 0, link", "slow", ""),
        ("ratios, 0, ratio", "1.5", "0.2"),
        ("ratios, 1", "none", ""),
        ("division", "dirichlet-0.1", ""),
        ("ms", "3.5", ""),
    ]
