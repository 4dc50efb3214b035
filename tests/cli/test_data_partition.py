"""`shoal data partition`: what a user sees of a division, and the sentence for every mistake."""

import json
import subprocess
import sys

import pytest

from shoal.cli.data import rules
from shoal.cli.main import main
from shoal.data.division.partition import PARTITIONS

SMALL = ("synthetic", "--data.samples", "200", "--data.shape", "4")


def answer(capsys, *words):
    code = main(["data", "partition", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def data_of(capsys, *words):
    code, out, err = answer(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_help_names_every_rule_and_loads_no_torch(capsys):
    assert set(rules()) == {*PARTITIONS, "sampling"}
    code, out, _ = answer(capsys, "--help")
    assert code == 0
    assert all(f"  {rule}" in out for rule in rules())
    program = (
        "import sys; from shoal.cli.main import main; main(['data', 'partition', '--help']); "
        "sys.exit(bool({'torch', 'numpy', 'matplotlib'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("rule", PARTITIONS)
def test_every_rule_covers_all_samples_once(rule, capsys):
    speeds = ("--speeds", "3,2,1") if rule == "speed" else ()
    shown = data_of(capsys, *SMALL, "--workers", "3", "--by", rule, *speeds)
    assert (shown["by"], shown["coverage"], shown["overlap"]) == (rule, 1.0, 0.0)
    assert sum(worker["samples"] for worker in shown["workers"]) == shown["samples"] == 200
    assert all(sum(worker["labels"].values()) == worker["samples"] for worker in shown["workers"])


def test_sampling_misses_some_and_repeats_others(capsys):
    shown = data_of(capsys, *SMALL, "--by", "sampling")
    assert 0.5 < shown["coverage"] < 0.75
    assert shown["overlap"] > 0.1


def test_the_table_shows_workers_labels_coverage_and_overlap(capsys):
    code, out, _ = answer(capsys, "digits", "--by", "dirichlet", "--alpha", "0.3", "--seed", "1")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "digits: 10,000 samples among 4 workers by dirichlet (alpha 0.3), seed 1"
    assert lines[2].split() == ["worker", "samples", "of", "all", "skew", "label", *map(str, range(10))]
    assert lines[7].split() == ["whole", "10,000", *["1,000"] * 10]
    assert "coverage 100.0 %" in out
    assert "overlap    0.0 %" in out


def test_a_rule_without_draws_has_no_seed_in_its_title(capsys):
    assert answer(capsys, *SMALL, "--by", "hash")[1].startswith(
        "synthetic: 200 samples among 4 workers by hash\n"
    )


def test_alpha_and_speeds_do_what_they_say(capsys):
    def mean_skew(alpha):
        shown = data_of(capsys, *SMALL, "--by", "dirichlet", "--alpha", alpha, "--allow-empty")
        skews = [worker["skew"] for worker in shown["workers"] if worker["skew"] is not None]
        return sum(skews) / len(skews)

    assert mean_skew("0.05") > mean_skew("1") > mean_skew("100")
    fast = data_of(capsys, *SMALL, "--by", "speed", "--speeds", "3,1", "--workers", "2")
    assert [worker["samples"] for worker in fast["workers"]] == [150, 50]


def test_a_rule_of_the_users_own(capsys, tmp_path, monkeypatch):
    (tmp_path / "own_rule.py").write_text(
        "def rule(num_samples, workers, first):\n"
        "    return [range((first + rank) % workers, num_samples, workers) for rank in range(workers)]\n"
    )
    monkeypatch.chdir(tmp_path)
    shown = data_of(capsys, *SMALL, "--by", "own_rule:rule", "--partition.first", "1")
    assert (shown["by"], shown["options"]) == ("own_rule:rule", {"first": 1})
    assert [worker["samples"] for worker in shown["workers"]] == [50] * 4


def test_it_is_drawn_into_files_of_both_kinds(capsys, tmp_path):
    svg, png = tmp_path / "who.svg", tmp_path / "who.png"
    code, out, _ = answer(capsys, *SMALL, "--svg", str(svg), "--png", str(png))
    assert code == 0
    assert out.splitlines()[-3:-1] == [f"wrote {svg}", f"wrote {png}"]
    assert "<svg" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"who.svg", "who.png"}


def test_samples_without_classes_have_no_label_columns(capsys):
    out = answer(capsys, *SMALL, "--data.task", "regression")[1]
    assert "skew" not in out
    assert "coverage 100.0 %" in out
