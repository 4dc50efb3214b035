"""Every codec learns digits as uncompressed training does, with its default settings."""

import json

import pytest

from shoal.cli.main import main
from shoal.codecs.build import CODECS

RUN = "--data digits --model mlp --strategy ddp --workers 2 --launcher threads --epochs 3 --device cpu --name run"
WITHIN = 0.01
"""How much lower the test accuracy may be: one point."""

pytestmark = pytest.mark.long


def accuracy(folder, exchange="all_reduce"):
    flags = f"{RUN} --exchange {exchange} --runs-dir {folder}"
    assert main(["train", "--quiet", *flags.split()]) == 0
    return json.loads((folder / "run" / "result.json").read_text())["test_accuracy"]


@pytest.fixture(scope="module")
def uncompressed(tmp_path_factory):
    return accuracy(tmp_path_factory.mktemp("uncompressed"))


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_is_within_a_point_of_uncompressed(codec, uncompressed, tmp_path):
    assert accuracy(tmp_path, f"compressed:{codec}") >= uncompressed - WITHIN
