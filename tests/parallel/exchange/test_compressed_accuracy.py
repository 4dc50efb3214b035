"""Every codec learns digits as uncompressed training does, with its default settings."""

import json

import pytest

from shoal.cli.main import main
from shoal.codecs.build import CODECS

RUN = "--data digits --model mlp --strategy ddp --workers 2 --launcher threads --epochs 3 --device cpu"
WITHIN = 0.01
"""How much lower the test accuracy may be: one point."""


def accuracy(capsys, flags):
    assert main(["train", "--json", *f"{RUN} {flags}".split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])["test_accuracy"]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_codec_is_within_a_point_of_uncompressed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plain = accuracy(capsys, "--name plain")
    missed = {
        codec: found
        for codec in CODECS
        if (found := accuracy(capsys, f"--exchange compressed:{codec} --name {codec}")) < plain - WITHIN
    }
    assert not missed, f"uncompressed: {plain}"
