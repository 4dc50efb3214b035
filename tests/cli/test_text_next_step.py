"""The last line of a command: what to type next, as a shell takes it."""

import shlex
from importlib import import_module

import pytest

from shoal.cli.main import main, module_of
from shoal.compare.variants import variants_of
from shoal.config.sections.values import Custom

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --model mlp --model.hidden 8 --epochs 1 --threads 1"
RUN = "runs/my run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a finished run whose name needs quotes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("next"))
        assert main(["train", *TINY.split(), "--batch-size", "8", "--name", "my run", "--quiet"]) == 0
        yield tmp_path_factory.getbasetemp()


def last_line(capsys, *argv):
    capsys.readouterr()
    main(list(argv))
    return capsys.readouterr().out.splitlines()[-1]


def is_understood(command):
    """Whether the words after "shoal" are a command with its words and flags."""
    name, *words = command
    found = import_module(module_of(name)).COMMAND
    if hasattr(found, "commands"):
        found, words = found.commands[words[0]], words[1:]
    return found.parse(words, None) is not None


STEPS = {
    "train": (["train", *TINY.split(), "--name", "other"], "shoal report runs/other"),
    "report": (["report", RUN, "--out", "page"], "shoal compare 'runs/my run/config.toml'"),
    "evaluate": (["evaluate", RUN], "shoal report 'runs/my run'"),
    "runs": (["runs", "--where", "run=my run"], "shoal report 'runs/my run'"),
    "memory": (
        ["memory", "--model", "mlp", "--formula-only", "--techniques", "false"],
        "shoal train --model=mlp",
    ),
    "data list": (["data", "list"], "shoal data partition digits --by dirichlet --alpha 0.3"),
    "data partition": (
        ["data", "partition", "digits", "--by", "dirichlet", "--alpha", "0.3", "--workers", "2"],
        "shoal train quickstart --data=digits --partition=dirichlet --workers=4 --strategy=naive "
        "--partition.alpha=0.3 --workers=2",
    ),
    "graph": (["graph"], "shoal graph course --svg course.svg"),
    "lab start": (["lab", "start", "autograd", "--out", "mine"], "shoal lab check autograd mine"),
    "check": (["check", "exchange", "by:ring", "--workers", "1"], "--strategy ddp --exchange by:ring"),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.usefixtures("without_figures")
def test_a_command_ends_with_a_command_that_shoal_understands(folder, name, capsys):
    argv, expected = STEPS[name]
    line = last_line(capsys, *argv)
    assert line.startswith("next  ")
    assert line.endswith(expected)
    words = shlex.split(line)
    assert is_understood(words[words.index("shoal") + 1 :])


def test_a_lab_names_the_file_to_edit(folder, capsys):
    assert last_line(capsys, "lab", "start", "autograd").startswith(
        "next  edit taskautograd/tape.py, then  shoal"
    )


@pytest.mark.parametrize(
    ("code", "end"), [("mine:net", "config.toml' --trust-code"), ("shoal_fit:model", "/report.html")]
)
@pytest.mark.usefixtures("without_figures")
def test_code_of_ones_own_needs_consent_and_objects_of_a_program_cannot_be_compared(
    folder, code, end, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("shoal.config.schema.named_code", lambda _: [("model", Custom(name=code))])
    assert last_line(capsys, "report", RUN, "--out", str(tmp_path)).endswith(end)


def test_the_recipe_of_a_run_can_be_compared(folder):
    assert len(variants_of([f"{RUN}/config.toml"], [])) > 1


@pytest.mark.parametrize(
    "argv",
    [
        ["train", *TINY.split(), "--name", "json", "--json"],
        ["train", *TINY.split(), "--name", "quiet", "--quiet"],
        ["evaluate", RUN, "--json"],
        ["runs", "--json"],
        ["evaluate", f"{RUN}/model.safetensors"],
    ],
    ids=" ".join,
)
def test_what_a_program_reads_has_no_such_line(folder, argv, capsys):
    assert not last_line(capsys, *argv).startswith("next")
