"""The resolved copy in the run folder is the run."""

import tomllib

import pytest

from shoal.config.read import from_tree, read
from shoal.config.schema import RunConfig
from shoal.config.sections.train import OutputConfig
from shoal.config.sections.values import Custom
from shoal.config.write import to_toml


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--optimizer", "gd"],
        ["--model", "mlp", "--model.hidden", "5", "--clip-norm", "0.1", "--steps", "7"],
        ["--data", "synthetic", "--data.shape", "3,4,4", "--schedule", "cosine", "--schedule.warmup", "3"],
        ["--model", "nets.mine:tiny", "--model.width", "3", "--model.rate", "1e-05", "--model.kind", "a b"],
    ],
)
def test_written_and_read_back_it_is_the_same(flags):
    config = read(None, flags)
    assert from_tree(tomllib.loads(to_toml(config))) == config


def test_odd_letters_survive():
    config = RunConfig(
        output=OutputConfig(dir='a "b" \\ 中文\n\t\x7f'), model=Custom("a.b:c", (("text", "']\""),))
    )
    assert from_tree(tomllib.loads(to_toml(config))) == config
