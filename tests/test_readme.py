"""The code of the README and the docs runs, and the commands that the README shows exist."""

import copy
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.cli.main import all_commands, main
from shoal.cli.train import COMMAND as TRAIN
from shoal.comm.threads.group import run_threads
from shoal.config.read import read_flags

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
IN_CHINESE = ROOT / "README.zh-CN.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language, page=README):
    """The blocks of code of this language; "": of none, which are commands and what they print."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def code_with(name):
    """The first block of Python with this name, in the README or the docs: text may move between the pages."""
    return next(block for page in PAGES for block in blocks("python", page) if name in block)


def commands(page):
    """The commands of ours on a page: lines of its blocks, and what stands in backticks."""
    lines = "\n".join(blocks("", page) + blocks("bash", page)).replace("\\\n", " ").splitlines()
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = [line.split("  #")[0].removeprefix("$ ").strip() for line in lines]
    return [line for line in found + re.findall(r"`([^`]+)`", text) if re.match(r"shoal [a-z]+( |$)", line)]


def test_the_three_lines_that_load_the_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quickstart", "--steps", "2", "--threads", "1", "--name", "quickstart"]) == 0
    names: dict[str, object] = {}
    exec(code_with("load_file"), names)
    from shoal.training.weights import read_model

    weights = read_model(tmp_path / "runs/quickstart/model.safetensors").weights
    for name, tensor in names["net"].state_dict().items():
        assert (tensor == weights[name]).all()


def linear(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 3).double()


def samples(number):
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(number, 4, generator=draw, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(3, (number,), generator=draw))


def train_by_the_loop(model, dataset):
    names = {"model": model, "dataset": dataset, "DataLoader": DataLoader, "functional": torch.nn.functional}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    exec(code_with("step_sizes"), names)
    return model.weight.detach().clone()


def test_the_training_loop_runs_without_a_launcher():
    model = linear()
    before = model.weight.clone()
    assert not torch.equal(train_by_the_loop(model, samples(100)), before)


@pytest.mark.parametrize("number", [129, 128, 130, 2])
def test_the_training_loop_is_exact_though_workers_have_unequal_numbers_of_batches(number):
    """129 samples are 65 and 64 for two workers: two batches and one."""
    dataset, workers = samples(number), 2
    models = [linear() for _ in range(workers)]
    weights = run_threads(workers, lambda group: train_by_the_loop(models[group.rank], dataset))

    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samplers = [shoal.PartitionSampler(dataset, workers, rank, by="random") for rank in range(workers)]
    for epoch in range(2):
        orders = [list(sampler) for sampler in samplers if not sampler.set_epoch(epoch)]
        for start in range(0, max(map(len, orders)), 64):
            inputs, labels = dataset[[index for order in orders for index in order[start : start + 64]]]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    for weight in weights:
        torch.testing.assert_close(weight, model.weight.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(weights[0], weights[1])


def test_the_loop_of_a_pipeline():
    code = code_with("shoal.Pipeline")
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).double()] * 2
    models[1] = copy.deepcopy(models[0])
    loader = [dataset[:] for dataset in (samples(12), samples(7))]

    def work(group):
        names = {"model": models[group.rank], "nn": torch.nn, "torch": torch, "shoal": shoal}
        names |= {"loader": loader, "example_inputs": loader[0][0]}
        exec(code, names)
        return names["loss"].item()

    first, second = run_threads(2, work)
    assert first == second > 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "mine:net", "--model.width", "8"],
        ["--data", "mine:data", "--data.n", "100"],
        ["--schedule", "mine:schedule", "--schedule.power", "2"],
        ["--loss", "mine:loss"],
        ["--metrics", "mine:margin,top3"],
        ["--optimizer", "mine:optimizer", "--lr", "0.1"],
        ["--strategy", "naive", "--exchange", "mine:exchange"],
        ["--strategy", "naive", "--partition", "mine:partition"],
    ],
    ids=lambda flags: next(flag for flag in flags if flag.startswith("mine:")),
)
def test_what_is_ones_own_is_taken(flags, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(code_with("def net"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    workers = ["--workers", "2", "--launcher", "threads"] if "--strategy" in flags else []
    small = ["--steps", "2", "--threads", "1", *(() if "--data" in flags else ("--data.samples", "100"))]
    sys.modules.pop("mine", None)  # other tests, too, have a module of this name
    try:
        assert main(["train", "--model", "linear", *small, *workers, *flags]) == 0
    finally:
        sys.modules.pop("mine", None)
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist(page):
    assert {line.split()[1] for line in commands(page)} <= set(all_commands())


TRAININGS = sorted({line for page in PAGES for line in commands(page) if line.startswith("shoal train ")})
SETTINGS_ALONE = re.compile(r"…|--help|\$|\| ")
"""In a line that is no whole command, or that a shell would change."""


@pytest.mark.parametrize("line", [line for line in TRAININGS if not SETTINGS_ALONE.search(line)])
def test_the_flags_of_the_pages_exist(line):
    read_flags(TRAIN.parse(shlex.split(line)[2:]).settings)


@pytest.mark.parametrize(
    "line",
    sorted(
        {
            line
            for page in (
                README,
                ROOT / "docs/en/train.md",
                ROOT / "docs/en/strategies.md",
                ROOT / "docs/en/loop.md",
            )
            for line in commands(page)
            if re.match(r"shoal (check \w+ \S|explain|data list|launch .*all_reduce)", line)
        }
    ),
    ids=lambda line: line.split()[1],
)
def test_the_command_runs_as_printed_in_the_root_of_the_repository(line, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(line)[1:]) == 0


def test_make_is_all_it_takes():
    assert shutil.which("make"), "the README promises that make is enough"
    makefile = (ROOT / "Makefile").read_text()
    for goal in re.findall(r"^make (\w+)", "\n".join(blocks("")), re.MULTILINE):
        assert re.search(rf"^{goal}:", makefile, re.MULTILINE)


def test_a_model_of_ones_own_takes_ten_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in blocks("python") if "shoal.fit" in block)
    assert len(lines_of(code)) <= 10
    names: dict[str, object] = {}
    exec(code, names)
    inputs, labels = names["data"][1]
    right = (names["model"](inputs).argmax(1) == labels).double().mean().item()
    assert right == pytest.approx(names["result"].test_accuracy)
    assert right > 0.8
    assert main(["report", names["result"].run]) == 0


def test_a_loop_of_ones_own_takes_twelve_lines(capsys):
    """Both workers end with the same weights, and these tell the two kinds of samples apart."""
    (code,) = (block for block in blocks("python") if "DistributedDataParallel" in block)
    assert len([line for line in lines_of(code) if "import" not in line]) <= 12
    assert "backward" in code

    def work(group):
        names: dict[str, object] = {}
        exec(code, names)
        return names["model"].module.weight.detach().clone(), names["group"].size

    (first, size), (second, _) = run_threads(2, work)
    assert size == 2
    assert torch.equal(first, second)
    assert (first[1] - first[0]).sum() > 0


def lines_of(code):
    return [line for line in code.splitlines() if line.strip() and not line.startswith("#")]


def test_the_readme_is_short():
    assert all(len(page.read_text(encoding="utf-8").splitlines()) <= 120 for page in (README, IN_CHINESE))


def test_five_guarantees_name_the_tests_that_check_them():
    guarantees = [re.findall(r"`(tests/[\w/]+\.py)`", line) for line in numbered(README)]
    assert len(guarantees) == 5
    assert all(paths and all((ROOT / path).exists() for path in paths) for paths in guarantees)


def numbered(page):
    return re.findall(r"^\d\. .*", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_both_languages_have_the_same_parts():
    """Headings, lists, tables, links, commands, and blocks but for their comments."""

    def parts(page, other):
        text = page.read_text(encoding="utf-8").replace(".zh-CN.svg", ".svg").replace(" --lang zh", "")
        text = text.replace(f"]({other.name})", "](the other language)")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        return {
            "headings": re.findall(r"^#+ ", text, re.MULTILINE),
            "items": [len(re.findall(rf"^{kind} ", text, re.MULTILINE)) for kind in (r"\d\.", "-", r"\|")],
            "links": sorted(re.findall(r'\]\(([^)]+)\)|src="([^"]+)"', text)),
            "code": sorted(re.findall(r"`([^`\n]+)`", prose)),
            "blocks": [
                (language, re.sub(r"\s+# .*", "", block))
                for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
            ],
        }

    assert parts(README, IN_CHINESE) == parts(IN_CHINESE, README)
