"""`--compile`: the same training within rounding, its seconds apart, the compiler's errors in one sentence."""

import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file
from small_runs import NET, train

RUN = (
    "--model own_compiled:Net --loss cross_entropy --data synthetic --data.samples 50 "
    "--data.shape 1,4,4 --data.classes 3 --optimizer sgd --lr 0.1 --batch-size 20 --epochs 2 --device cpu"
)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The result and the weights of a run of the network in float64; its last batch is smaller than the others."""
    (tmp_path / "own_compiled.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def trained(*flags):
        result = train(capsys, RUN, *flags)
        return result, load_file(f"{result['run']}/model.safetensors")

    return trained


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert all((found[name] - expected[name]).abs().max() < 1e-12 for name in expected)


@pytest.mark.long
def test_a_compiled_model_trains_like_the_model(run):
    (plain, expected), (compiled, found) = run(), run("--compile")
    assert_equal(found, expected)
    assert plain["compile_s"] == 0 < compiled["compile_s"]
    assert compiled["test_accuracy"] == plain["test_accuracy"]


@pytest.mark.long
@pytest.mark.parametrize(
    "strategy", ["ddp", "naive", "onecopy", "zero --strategy.stage 2", "server", "local --strategy.every 1"]
)
def test_every_strategy_trains_a_compiled_model(run, strategy):
    flags = f"--strategy {strategy} --workers 2"
    assert_equal(run(flags, "--compile")[1], run(flags)[1])


@pytest.mark.long
def test_a_missing_compiler_is_named(run, tmp_path):
    words = [sys.executable, "-m", "shoal", "train", *RUN.split(), "--compile"]
    env = os.environ | {"CXX": "no-such-compiler", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    done = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2
    assert "torch.compile cannot compile model own_compiled:Net" in done.stderr
    assert "no-such-compiler" in done.stderr
