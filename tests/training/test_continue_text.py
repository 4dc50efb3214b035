"""The recipe gpt-tiny: every strategy trains what one machine trains, and the model writes."""

import json

import pytest

from shoal.cli.main import main
from shoal.config.sections.data import AliceConfig, FilesConfig
from shoal.data.load import load
from shoal.errors import DataError
from shoal.printable import printable
from shoal.training.saved import open_run

SHORT = (
    "gpt-tiny --model.width 16 --data.block_size 32 --batch-size 8 --steps 3 --optimizer sgd --lr 0.3 "
    "--schedule constant --threads 1 --device cpu --launcher threads"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def train(folder, name, *flags):
    assert main(["train", *SHORT.split(), "--runs-dir", str(folder), "--name", name, *flags]) == 0
    return open_run(folder / name).weights


@pytest.fixture(scope="module")
def one_machine(folder):
    return train(folder, "single")


@pytest.mark.parametrize(
    "flags",
    ["--strategy ddp", "--strategy zero --sync.stage 3", "--strategy pipeline", "--strategy tensor"],
)
def test_every_strategy_trains_one_machines_weights(folder, one_machine, flags):
    weights = train(folder, flags.split()[1].partition("=")[0], *flags.split(), "--workers", "2")
    assert weights.keys() == one_machine.keys()
    for name, weight in weights.items():
        assert (weight - one_machine[name]).abs().max() <= 2e-6, name


def test_training_ends_with_text_that_the_model_writes(folder, one_machine, capsys):
    train(folder, "shown")
    shown = capsys.readouterr().out
    assert "Alice was beginning to " in shown
    assert main(["evaluate", str(folder / "shown"), "--prompt", "Alice was beginning to ", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["text"]
    assert all(line.strip() in shown for line in printable(written).split("\n")), "the same text every time"
    assert len(written.encode(errors="replace")) > 200


def test_a_model_of_pictures_writes_no_text(tmp_path, capsys):
    flags = "--model linear --steps 1 --threads 1 --device cpu --name digits --runs-dir"
    assert main(["train", *flags.split(), str(tmp_path)]) == 0
    assert main(["evaluate", str(tmp_path / "digits"), "--prompt", "Alice"]) == 2
    assert "data digits" in capsys.readouterr().err


def test_a_text_of_your_own_is_read_as_the_book_is(tmp_path):
    book = load(AliceConfig(block_size=32))
    assert bytes(book.train.inputs[:40].flatten().tolist()).decode().split()[:2] == ["ALICE'S", "ADVENTURES"]
    text = b"".join(bytes(row.tolist()) for row in book.train.inputs)
    for place in ("book.txt", "book/train.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(text)
    with pytest.warns(UserWarning, match="no test set"):
        own = load(FilesConfig(path=str(tmp_path / "book.txt"), block_size=32))
    assert (own.task, own.outputs, own.input_shape) == (book.task, book.outputs, book.input_shape)
    (tmp_path / "book" / "test.txt").write_bytes(text[:64])
    split = load(FilesConfig(path=str(tmp_path / "book"), block_size=32))
    assert (len(split.train), len(split.test)) == ((len(text) - 1) // 32, 1)
    (tmp_path / "book.txt").write_bytes(b"Alice")
    with pytest.raises(DataError, match="5 tokens, and one sample needs 33"):
        load(FilesConfig(path=str(tmp_path / "book.txt"), block_size=32))
