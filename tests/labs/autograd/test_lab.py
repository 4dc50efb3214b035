import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reports import Listening, assert_judged, assert_whole, rows, text_of

from shoal.autograd.static import compile as compile_graph
from shoal.cli.main import main
from shoal.compare.watch import QuietWatch
from shoal.errors import ConfigError
from shoal_labs.autograd.experiment import measure_all
from shoal_labs.autograd.figures import LEGEND
from shoal_labs.autograd.lab import LAB
from shoal_labs.autograd.plan import AutogradPlan
from shoal_labs.frame import run_plan
from shoal_labs.runs import Runs
from shoal_labs.timing.contest import MOST
from shoal_labs.words import load_words

TINY = AutogradPlan(
    rounds=2,
    contest_s=0.0,
    compilations=2,
    fresh_processes=1,
    batch_size=2,
    recurrences=(1, 2),
    chain_sizes=(4, 8),
    distinct=5,
    quick=True,
)


@pytest.fixture(scope="module")
def measured():
    """The experiments, once for all reports; and the progress that was reported."""
    watch = Listening()
    runs = Runs(Path("nowhere"), load_words(LAB.package, "en"), watch)
    with pytest.MonkeyPatch.context() as patch:  # it starts processes, and has a test of its own
        patch.setattr("shoal_labs.autograd.networks.cold_compile_ms", lambda *_: (900.0, 901.0))
        return measure_all(TINY, runs), watch.lines


@pytest.fixture(scope="module", params=["en", "zh"])
def finished(request, measured, tmp_path_factory):
    words = load_words(LAB.package, request.param)
    folder = tmp_path_factory.mktemp("lab") / "report"
    lab = replace(LAB, measure=lambda *_: measured[0])
    return run_plan(lab, TINY, folder, "shoal lab autograd", words, QuietWatch()), words


def test_the_folder_holds_report_figures_and_tables(finished, measured):
    outcome, _ = finished
    names = {path.relative_to(outcome.folder).as_posix() for path in outcome.folder.glob("*/*")}
    drawn = {f"figures/{stem}.{kind}" for stem in ("caching", "chain") for kind in ("png", "pdf")}
    tables = {f"tables/{stem}.csv" for stem in ("times", "findings", *LAB.content(measured[0]).tables)}
    assert names == drawn | tables | {"figures/graph.svg"}
    assert {p.name for p in outcome.folder.iterdir()} == {"report.md", "report.html", "figures", "tables"}


def test_the_report_has_the_sections_and_leaves_no_place_empty(finished):
    outcome, words = finished
    assert_whole(outcome.folder, words)
    text = text_of(outcome.folder)
    assert "v1 = v0 * b" in text  # the printed tape
    assert "def propagate(" in text  # the source
    assert "torch.add(" in text  # the compiled function


def test_the_graph_speaks_the_reports_language(finished):
    outcome, words = finished
    svg = (outcome.folder / "figures" / "graph.svg").read_text(encoding="utf-8")
    page = (outcome.folder / "report.html").read_text(encoding="utf-8")
    shown = page[page.index('<svg class="only"') :].split("</svg>")[0]
    for drawing in (svg, shown):
        assert all(f">{words(key)}</text>" in drawing for key in LEGEND.values())
    assert not re.findall(r"[\"' ]#[0-9a-f]{6}\"", shown)  # every colour follows the theme


def test_every_experiment_is_printed(measured):
    _, lines = measured
    assert [re.split(r":| \(", line)[0] for line in lines] == [
        "The worked example",
        "mlp",
        "  training step",
        "lenet",
        "  training step",
        "Caching on the tape",
        "The order of a chain",
    ]


def test_every_finding_is_judged(finished):
    outcome, words = finished
    assert_judged(outcome, words, claims=LAB.claims)
    assert len(outcome.table.rows) == 6
    assert {len(row) for row in outcome.table.rows} == {len(outcome.table.header)}


def test_tables_hold_every_round_and_every_pass(finished):
    outcome, _ = finished
    times = rows(outcome.folder, "times")
    step = [row for row in times if row["experiment"] == "mlp step"]
    assert {row["rival"] for row in step} == {"dynamic", "static", "torch"}
    assert len(step) == 3 * MOST * TINY.rounds
    operations = [int(row["mlp: operations"]) for row in rows(outcome.folder, "passes")]
    assert operations == sorted(operations, reverse=True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_pass_of_the_compiler_has_a_name_in_every_language(lang):
    words = load_words(LAB.package, lang)
    for stage in compile_graph(lambda x: x + x).plan(torch.ones(2)).stages:
        assert words(f"pass.{stage.name.replace(' ', '_')}")


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        run_plan(LAB, TINY, tmp_path, "", load_words(LAB.package, "en"), QuietWatch())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_interrupted_lab_leaves_nothing(tmp_path):
    class Interrupting(QuietWatch):
        def say(self, line):
            if "worked example" in line:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(LAB, TINY, tmp_path / "out", "", load_words(LAB.package, "en"), Interrupting())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("svg_alone")
def test_the_command_reaches_the_lab(capsys, tmp_path, monkeypatch, measured):
    asked = []
    faked = replace(LAB, measure=lambda plan, _: asked.append(plan) or measured[0])
    monkeypatch.setattr("shoal_labs.autograd.lab.LAB", faked)
    code = main(["lab", "autograd", "--quick", "--quiet", "--seed", "7", "--out", str(tmp_path / "out")])
    assert code == 0
    assert [(plan.quick, plan.seed) for plan in asked] == [(True, 7)]
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "out" / name) for name in ("report.html", "report.md")
    ]
