"""The wording of errors, in one golden file: the commands of messages.txt and what each of them answers.

All other tests assert types, names and values. To change a sentence, change it in the code and run
`python tests/test_messages.py`, which writes the answers again.
"""

import contextlib
import difflib
import io
import os
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from shoal.cli.main import main

GOLDEN = Path(__file__).with_name("messages.txt")
CHECKOUT = Path(__file__).resolve().parents[1]
FILES = {
    "mine.py": "def right(group, bucket, times=1.0):\n    return group.all_reduce(bucket)\n",
    "unfinished/config.toml": "seed = 1",
    "full/file": "something",
    "wrong.toml": "train = 3",
    "tiny.toml": """
        [data]
        name = "synthetic"
        samples = 96
        shape = [1, 4, 4]
        classes = 3
        [model]
        name = "mlp"
        hidden = [12]
        [train]
        batch_size = 16
        epochs = 2
    """,
}
BASE = "train --data synthetic --data.samples 32 --data.shape 1,12,12 --data.classes 3 --model mlp --model.hidden 16,8 "
BASE += "--batch-size 32 --epochs 1 --threads 1 --device cpu --name base --quiet"
"""The run that commands about finished runs are given."""


def prepare(folder: Path) -> None:
    """Write what the commands find in the current folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    assert main(shlex.split(BASE)) == 0


def written(folder: Path) -> set[Path]:
    """Everything in a folder but bytecode, which Python writes."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def answer(line: str, folder: Path) -> str:
    """What a command prints; it must refuse with exit code 2, print nothing else, and write nothing."""
    before = written(folder)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(shlex.split(line)[1:])
    said = err.getvalue().replace(str(folder), "FOLDER").replace(f"{CHECKOUT}/", "")
    assert (code, out.getvalue()) == (2, ""), f"{line}: exit code {code}, {out.getvalue()}{said}"
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert written(folder) == before, f"{line} has written something"
    return said


def answered(golden: str, folder: Path) -> str:
    """The golden file with the answers of today: `$ ` begins a command, `# ` a comment, other lines are answers."""
    lines: list[str] = []
    for line in golden.splitlines():
        if line.startswith("# "):
            lines += ["", line] if lines else [line]
        elif line.startswith("$ "):
            lines += [line, *answer(line[2:], folder).splitlines()]
    return "\n".join(lines) + "\n"


def test_errors_say_what_the_golden_file_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    prepare(tmp_path)
    golden = GOLDEN.read_text(encoding="utf-8")
    found = answered(golden, tmp_path)
    changes = difflib.unified_diff(
        golden.splitlines(), found.splitlines(), "messages.txt", "now", lineterm=""
    )
    assert found == golden, "\n".join([*changes, "if this is meant: python tests/test_messages.py"])


def rewrite() -> None:
    """Write the golden file again, with the answers of today."""
    with TemporaryDirectory() as name:
        os.chdir(name)
        torch.cuda.is_available = lambda: False
        prepare(Path(name).resolve())
        GOLDEN.write_text(
            answered(GOLDEN.read_text(encoding="utf-8"), Path(name).resolve()), encoding="utf-8"
        )


if __name__ == "__main__":
    sys.exit(rewrite())
