"""Findings on the terminal: as wide as the page, and only so many after training."""

from dataclasses import dataclass

import pytest

from shoal.cli.findings import MOST, show_after_training, show_findings
from shoal.cli.main import main
from shoal.compare import comparison, one_run
from shoal.compare.remark import Remark
from shoal.report.words import page_words

EN, ZH = page_words("en", "shoal.compare"), page_words("zh", "shoal.compare")
LONG = Remark(
    "fails",
    "waits",
    "waits",
    "Rank 1 is slow.",
    "It takes 3.0 × as long as rank 0.",
    "Try --balance, which gives it less.",
)
ZH_REMARK = Remark("holds", "efficient", "高效", "代价很小。", "数字。", "")


def test_a_finding_is_wrapped_below_its_claim(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    show_findings([LONG], EN)
    assert capsys.readouterr().out.splitlines() == [
        "  waits  Rank 1 is slow. It takes 3.0 ×",
        "         as long as rank 0.",
        "         → Try --balance, which gives it",
        "           less.",
    ]


def test_words_of_two_columns_are_aligned(capsys):
    show_findings([ZH_REMARK], ZH)
    assert capsys.readouterr().out == "  高效  代价很小。数字。\n"


@dataclass
class Trained:
    run: str
    workers: int
    steps: int = 40


@pytest.mark.parametrize(("workers", "steps", "shown"), [(2, 40, MOST), (1, 40, MOST), (2, 10, 0)])
def test_three_findings_after_training_unless_it_is_short(
    workers, steps, shown, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(comparison, "compare", lambda _: None)
    monkeypatch.setattr(one_run, "findings", lambda *_: [LONG] * 5)
    show_after_training(Trained(str(tmp_path), workers, steps))
    lines = capsys.readouterr().out.splitlines()
    assert sum("→" in line for line in lines) == shown
    assert lines[-1].startswith("next  shoal report ")


def test_events_that_take_long_to_read_are_left_to_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shoal.cli.findings.MOST_EVENT_BYTES", 10)
    (tmp_path / "events.rank0.jsonl").write_text("x" * 11)
    monkeypatch.setattr(comparison, "compare", lambda _: 1 / 0)
    show_after_training(Trained(str(tmp_path), 2))
    assert capsys.readouterr().out.startswith("next  ")


def test_a_short_run_of_two_workers_ends_with_its_next_step_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = "--data synthetic --data.samples 16 --data.shape 1,4,4 --model mlp --model.hidden 4 --epochs 1 --threads 1"
    words = f"{tiny} --batch-size 8 --strategy ddp --workers 2 --launcher threads --name it"
    assert main(["train", *words.split()]) == 0
    model, step = capsys.readouterr().out.splitlines()[-2:]
    assert model.endswith("runs/it/model.safetensors")
    assert step == "next  shoal report runs/it"
