"""The command itself: quick to answer, and every error one sentence with exit code 2."""

import errno
import os
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from shoal.cli.main import all_commands, main


def shoal(*words, cwd=None, timeout=60):
    command = [sys.executable, "-m", "shoal", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["train", "--help", "all"],
        ["data", "--help"],
        ["lab", "--help"],
        ["explain", "--help"],
        ["--version"],
    ],
)
def test_asking_for_help_loads_nothing_heavy(words):
    code = (
        "import sys; from shoal.cli.main import main; "
        f"code = main({words!r}); "
        "heavy = {'torch', 'numpy', 'rich', 'matplotlib', 'pydantic'} & sys.modules.keys(); "
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("words", [["--help"], ["lab", "check", "1"]])
def test_the_current_directory_is_not_imported_from(tmp_path, words):
    for module in ("json", "torch", "pathlib", "dataclasses"):
        (tmp_path / f"{module}.py").write_text("open('imported', 'w').close()")
    shoal(*words, cwd=tmp_path)
    assert not (tmp_path / "imported").exists()


def test_every_command_has_help(capsys):
    for name in all_commands():
        assert main([name, "--help"]) == 0
        page = capsys.readouterr().out
        assert f"shoal {name}" in page
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == page


def test_help_without_a_name_lists_every_command_once(capsys):
    pages = []
    for words in ([], ["help"], ["--help"], ["-h"]):
        assert main(words) == 0
        pages.append(capsys.readouterr().out)
    assert len({*pages}) == 1
    for name in all_commands():
        assert len(re.findall(rf"^  {name} ", pages[0], re.MULTILINE)) == 1


def test_a_reader_that_goes_away_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m shoal train --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("Usage")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_letters_gets_question_marks(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "shoal", "train", "--help"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"[--section.key value ?]" in done.stdout


def test_output_that_was_closed_leads_nowhere():
    done = subprocess.run(
        f"{sys.executable} -m shoal --help >&-", shell=True, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_cannot_be_written_is_one_sentence():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shoal", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "cannot write runs/mine/config.toml: No space left on device"),
        (errno.EACCES, "cannot open runs/mine/config.toml: Permission denied"),
    ],
)
def test_a_full_disk_or_a_closed_folder_is_one_sentence_wherever_it_is_noticed(
    monkeypatch, capsys, code, sentence
):
    def fail():
        raise OSError(code, os.strerror(code), "runs/mine/config.toml")

    monkeypatch.setattr("shoal.cli.doctor.checks.checks", fail)
    assert main(["doctor"]) == 2
    assert f"error: {sentence}" in capsys.readouterr().err


def test_sys_exit_in_code_of_the_users_own_is_an_error_whichever_command_runs_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaving.py").write_text(
        "import sys, torch\n"
        "class Net(torch.nn.Linear):\n"
        "    calls = 0\n"
        "    def __init__(self): super().__init__(4, 3)\n"
        "    def forward(self, inputs):\n"
        "        Net.calls += 1\n"
        "        return super().forward(inputs) if Net.calls < 2 else sys.exit(0)\n"
    )
    save_file(
        {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}, tmp_path / "weights.safetensors", {"x": "y"}
    )
    data = "--data synthetic --data.samples 20 --data.shape 4 --data.classes 3 --device cpu"
    assert main(["evaluate", "weights.safetensors", "--model", "leaving:Net", *data.split()]) == 2
    assert "a function of your own called sys.exit(0)" in capsys.readouterr().err
