"""--dry-run and --print-config."""

import pytest

from shoal.cli.main import main
from shoal.config.read import read
from shoal.config.write import to_toml

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --validation 0.25 --model mlp --model.hidden 8 "
TINY += "--batch-size 12 --epochs 2 --threads 1 --device cpu"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_says_what_would_be_done_and_does_nothing(here, capsys):
    assert main(["train", *TINY.split(), "--strategy", "ddp", "--workers", "2", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mlp on synthetic with adam, ddp with 2 workers, on cpu",
        "  data     48 training samples of shape [1, 4, 4], 16 for validation, 12 for test",
        "  model    226 trained parameters",
        "  steps    8, of 12 samples",
        "nothing was trained or written",
    ]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--strategy pipeline --workers 9", "9 stages"),
        ("--loss mae --model.hidden 100001,100001", "of memory"),
        ("--logger nothing", "unknown logger"),
    ],
)
def test_what_a_run_refuses_a_dry_run_refuses(flags, sentence, capsys):
    assert main(["train", *TINY.split(), *flags.split(), "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err


def test_the_printed_config_is_a_recipe_of_the_same_run(here, capsys):
    assert main(["train", *TINY.split(), "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip() == to_toml(read(None, TINY.split())).rstrip()
    (here / "recipe.toml").write_text(printed)
    assert read("recipe.toml", []) == read(None, TINY.split())
    assert not (here / "runs").exists()
