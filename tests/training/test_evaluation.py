"""Metrics of a run: the same under every strategy, and in everything that shows a run."""

import json

import pytest
from small_runs import NET, train

from shoal.cli.main import main

FLAGS = "--data synthetic --data.samples 90 --data.shape 1,4,4 --data.classes 3 --model measured_net:Net "
FLAGS += "--batch-size 32 --epochs 1 --optimizer sgd --lr 0.1 --threads 1 --device cpu --launcher threads "
FLAGS += "--validation 0.2 --metrics top2,perplexity,measured_net:Confident,measured_net:margin "
NET += """
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

def margin(outputs, labels):
    best = outputs.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]

from shoal.models.metrics import Metric

class Confident(Metric):
    def sums(self, outputs, labels):
        sure = outputs.softmax(1).amax(1) > 0.4
        return torch.stack([(sure & (outputs.argmax(1) == labels)).sum(), sure.sum()])

    def value(self, sums):
        return sums[0] / sums[1].clamp(min=1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "measured_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "ways",
    [
        ["--strategy naive --workers 2", "--strategy ddp --workers 3", "--strategy dp --workers 2"],
        ["--strategy zero --strategy.stage 3 --workers 2", "--strategy server --workers 2"],
        ["--strategy pipeline --workers 2", "--strategy tensor --workers 2", "--mesh data=2,pipeline=2"],
    ],
    ids=["copies", "sharded", "divided"],
)
def test_every_strategy_has_one_machines_metrics(capsys, ways):
    flags = FLAGS.replace("measured_net:Net", "measured_net:layered") if "pipeline" in ways[0] else FLAGS
    single = train(capsys, flags)
    assert single["test_metrics"].keys() == {"top2", "perplexity", "Confident", "margin"}
    for way in ways:
        found = train(capsys, flags, way)
        for key in ("test_metrics", "validation_metrics"):
            assert found[key] == pytest.approx(single[key], rel=1e-5), way


@pytest.mark.usefixtures("without_figures")
def test_metrics_are_shown_wherever_a_run_is(capsys, tmp_path):
    result = train(capsys, FLAGS, "--name it --logger csv")
    top2, perplexity = result["test_metrics"]["top2"], result["test_metrics"]["perplexity"]
    assert main(["runs", "--sort", "perplexity"]) == 0
    shown = capsys.readouterr().out
    assert "perplexity" in shown
    assert f"{100 * top2:.2f} %" in shown
    assert f"{perplexity:.4f}" in shown
    assert main(["report", "runs/it", "--out", "page"]) == 0
    assert "test perplexity" in capsys.readouterr().out
    page = (tmp_path / "page/report.md").read_text()
    assert f"{perplexity:.4f}" in page
    assert "Confident" in page
    header, *_, last = (tmp_path / "runs/it/metrics.csv").read_text().splitlines()
    assert header.endswith("validation_top2,validation_perplexity,validation_Confident,validation_margin")
    assert float(last.split(",")[-3]) == pytest.approx(result["validation_metrics"]["perplexity"])
    consent = "--trust-code --json"
    assert main(["evaluate", "runs/it", *consent.split()]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == pytest.approx(result["test_metrics"])
    assert main(["evaluate", "runs/it", "--model", "measured_net:Net", "--metrics", "top1"]) == 0
    assert f"top1 {100 * result['test_accuracy']:.2f} %" in capsys.readouterr().out


def test_the_terminal_shows_them(capsys):
    assert main(["train", *FLAGS.split()]) == 0
    shown = capsys.readouterr().out
    assert "    validation top2 " in shown
    assert "  test perplexity" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--metrics top4", "metric top4: the model has only 3 outputs"),
        ("--metrics measured_net:nn", "is of type module, and cannot be called"),
        ("--metrics perplexity --data.task regression --loss mse --model mlp", "labels must be classes"),
        ("--stop.metric accuracy --data.task regression --loss mse --model mlp --metrics loss", "regression"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_run(capsys, tmp_path, flags, message):
    assert main(["train", *FLAGS.split(), *flags.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
