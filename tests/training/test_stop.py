"""A signal to a run before its first step: it ends at once, and nothing is written."""

import signal

import pytest

from shoal.cli.main import main

OWN_DATA = """
import signal, threading, time

def read(number: int):
    if threading.current_thread().name != "rank 1":
        signal.raise_signal(number)
    for _ in range(3000):
        time.sleep(0.01)
    raise AssertionError("the data are read on")
"""


@pytest.mark.parametrize("launcher", ["--strategy single", "--strategy naive --workers 2 --launcher threads"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_are_read_ends_the_run_at_once(
    tmp_path, monkeypatch, capsys, launcher, number
):
    (tmp_path / "own_data.py").write_text(OWN_DATA)
    monkeypatch.syspath_prepend(tmp_path)
    words = f"--data own_data:read --data.number {int(number)} --model mlp --epochs 1 --device cpu {launcher}"
    assert main(["train", *words.split(), "--runs-dir", str(tmp_path / "runs"), "--quiet"]) == 128 + number
    assert "interrupted" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
