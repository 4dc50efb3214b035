"""Run folders that are damaged, mixed up, linked or of an older version: every reader answers in one sentence."""

import json
import random
import shutil
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.compare.comparison import compare
from shoal.compare.remark import notes
from shoal.compare.run_report import numbers_of
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.files import temporary_beside
from shoal.report.words import page_words
from shoal.training import checkpoint

TINY = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 12 "
TINY += "--batch-size 16 --epochs 2 --threads 1 --device cpu --launcher threads --checkpoint.every 4 --quiet"
EN = page_words("en", "shoal.compare")
OLD = Path(__file__).parent.parent / "training/saved_before/format-1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of two workers, a pruned one, and one of an older version."""
    folder = tmp_path_factory.mktemp("trained")
    flags = [*TINY.split(), "--runs-dir", str(folder / "runs")]
    for name, more in {"a": "", "b": "--seed 5", "pruned": "--prune magnitude"}.items():
        workers = ["--strategy", "ddp", "--workers", "2"]
        assert main(["train", *flags, *workers, *more.split(), "--name", name]) == 0
    shutil.copytree(OLD, folder / "runs/old")
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shoal(capsys):
    """Run a command: its exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def flip(path, position, bit=3):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


READERS = {
    "evaluate": ["evaluate", "runs/a"],
    "evaluate the file": ["evaluate", "runs/a/model.safetensors"],
    "prune": ["prune", "runs/a", "--finetune", "1"],
    "start": ["train", *TINY.split(), "--start", "runs/a"],
    "report": ["report", "runs/a", "--out", "out"],
    "compare": ["compare", "runs/a", "runs/b", "--out", "out"],
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS.keys())
def test_no_reader_takes_damaged_weights(here, shoal, words):
    flip(here / "runs/a/model.safetensors", -20)
    code, _, err = shoal(*words)
    assert code == 2
    assert "runs/a/model.safetensors is damaged" in err
    assert json.loads((here / "runs/a/result.json").read_text())["weights_sha256"] in err


def test_any_flipped_bit_of_the_weights_is_noticed_and_resuming_writes_them_again(here, shoal):
    path, whole = here / "runs/a/model.safetensors", (here / "runs/a/model.safetensors").read_bytes()
    data = 8 + int.from_bytes(whole[:8], "little")
    draw = random.Random(0)
    for position in [*range(8), *(draw.randrange(data, len(whole)) for _ in range(20))]:
        flip(path, position, draw.randrange(8))
        assert shoal("evaluate", "runs/a")[0] == 2
        path.write_bytes(whole)
    flip(path, -1)
    assert shoal("train", "--resume", "runs/a", "--quiet")[0] == 0
    assert shoal("evaluate", "runs/a")[0] == 0


def test_weights_are_unchecked_where_no_result_has_their_checksum(here, shoal):
    assert "unchecked" not in shoal("evaluate", "runs/a")[1]
    assert "unchecked" not in shoal("evaluate", "runs/old")[1]  # its result has one
    shutil.copy(here / "runs/a/model.safetensors", here / "mine.safetensors")
    code, out, _ = shoal("evaluate", "mine.safetensors")
    assert code == 0
    assert "unchecked" in out
    result = json.loads((here / "runs/old/result.json").read_text())
    del result["weights_sha256"]
    (here / "runs/old/result.json").write_text(json.dumps(result))
    code, out, _ = shoal("evaluate", "runs/old", "--json")
    assert code == 0
    assert json.loads(out)["checked"] is False


def test_damaged_masks_and_settings_in_a_weights_file_are_refused(here, shoal):
    flip(here / "runs/pruned/masks.safetensors", -2, 0)
    code, _, err = shoal("prune", "runs/pruned")
    assert code == 2
    assert "masks.safetensors is damaged" in err
    path = here / "mine.safetensors"
    path.write_bytes((here / "runs/a/model.safetensors").read_bytes().replace(b"seed = 0", b"seed = 1"))
    code, _, err = shoal("evaluate", "mine.safetensors")
    assert code == 2
    assert "mine.safetensors is damaged" in err


def test_weights_of_an_earlier_attempt_do_not_count_once_the_run_was_resumed_and_stopped(here, shoal):
    folder = RunFolder(here / "runs/a")
    before = folder.model.read_bytes()
    assert shoal("train", "--resume", "runs/a", "--epochs", "4", "--quiet")[0] == 0
    folder.model.write_bytes(before)
    folder.write_result(folder.read_result() | {"status": "interrupted"})
    code, out, _ = shoal("evaluate", "runs/a", "--json")
    assert code == 0
    assert json.loads(out)["source"].endswith("checkpoints/step-000024")


def change_number(path):
    path.write_text(
        path.read_text().replace('"loss":', '"loss":1', 1).replace('accuracy": 0', 'accuracy": 1')
    )


def change_key(path):
    path.write_text(path.read_text().replace('"seconds"', '"secomds"', 1))


def replace_by_another_runs(path):
    shutil.copy(path.parent.parent / "b" / path.name, path)


def drop_end(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))


@pytest.mark.parametrize("name", ["result.json", "events.rank0.jsonl", "events.rank1.jsonl"])
@pytest.mark.parametrize("change", [change_number, change_key, replace_by_another_runs, drop_end])
def test_a_damaged_or_foreign_file_is_one_sentence_of_runs_report_and_compare(here, shoal, name, change):
    change(here / "runs/a" / name)
    for words in (["report", "runs/a"], ["compare", "runs/a", "runs/b"]):
        code, out, err = shoal(*words, "--out", "out")
        assert (code, out) == (2, "")
        assert "runs/a" in err
        assert "Traceback" not in err
        assert "Error" not in err
    code, out, err = shoal("runs", "--json")
    assert code == 0
    assert "runs/a" in err
    assert [json.loads(line)["run"] for line in out.splitlines()] == ["old", "b", "pruned"]


def test_steps_that_were_lost_before_a_run_was_resumed_are_noticed(here, shoal):
    path = here / "runs/a/events.rank0.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    assert shoal("train", "--resume", "runs/a", "--epochs", "3", "--quiet")[0] == 0
    code, _, err = shoal("report", "runs/a")
    assert code == 2
    assert "events.rank0.jsonl" in err


@pytest.mark.parametrize("name", ["config.toml", "checkpoints"])
def test_settings_and_checkpoints_of_another_run_are_refused_and_both_are_named(here, shoal, name):
    ours, other = RunFolder(here / "runs/a"), RunFolder(here / "runs/b")
    ids = {ours.run_id, other.run_id}
    assert len(ids) == 2
    if name == "checkpoints":
        shutil.rmtree(ours.checkpoints)
        shutil.copytree(other.checkpoints, ours.checkpoints)
    else:
        shutil.copy(other.config, ours.config)
    before = ours.config.read_bytes()
    for words in (
        ["train", "--resume", "runs/a", "--epochs", "3"],
        ["evaluate", "runs/a", "--checkpoint", "last"],
    ):
        code, _, err = shoal(*words)
        assert code == 2
        assert all(run_id in err for run_id in ids)
    assert ours.config.read_bytes() == before


def test_checkpoints_of_a_run_without_an_id_and_of_one_with_an_id_do_not_mix(here, shoal):
    for ours, other in (("a", "old"), ("old", "b")):
        folder = RunFolder(here / "runs" / ours)
        shutil.rmtree(folder.checkpoints)
        shutil.copytree(RunFolder(here / "runs" / other).checkpoints, folder.checkpoints)
        code, _, err = shoal("evaluate", str(folder.path), "--checkpoint", "last")
        assert code == 2
        assert "older version" in err


def test_all_files_of_a_run_have_its_id_and_no_bit_of_its_weights_depends_on_it(here, shoal):
    folder = RunFolder(here / "runs/a")
    assert len(folder.run_id) == 16
    assert folder.read_result()["run_id"] == folder.run_id
    assert [read_events(folder.events(rank))[0]["run_id"] for rank in range(2)] == [folder.run_id] * 2
    manifests = [json.loads(path.read_text()) for path in folder.checkpoints.glob("*/manifest.json")]
    assert {manifest["run_id"] for manifest in manifests} == {folder.run_id}
    again = [*TINY.split(), "--strategy", "ddp", "--workers", "2", "--name", "again"]
    assert shoal("train", *again)[0] == 0
    assert RunFolder(here / "runs/again").run_id != folder.run_id
    assert (
        RunFolder(here / "runs/again").read_result()["weights_sha256"]
        == folder.read_result()["weights_sha256"]
    )
    # A recipe made of a run's settings is another run.
    assert shoal("train", str(folder.config), "--name", "third", "--runs-dir", "runs")[0] == 0
    assert RunFolder(here / "runs/third").run_id != folder.run_id


@pytest.mark.parametrize("run", ["a", "old"])
def test_a_folder_may_be_renamed_moved_copied_and_linked_and_resumed_with_other_settings(here, shoal, run):
    kept = RunFolder(here / "runs" / run).run_id
    (here / "elsewhere").mkdir()
    shutil.copytree(here / "runs" / run, here / "elsewhere/copy")
    (here / "runs" / run).rename(here / "moved")
    (here / "linked").symlink_to(here / "moved", target_is_directory=True)
    found = []
    for path, more in (("elsewhere/copy", "--strategy single --workers 1"), ("linked", "--trace")):
        code, out, err = shoal(
            "train", "--resume", path, "--epochs", "3", "--launcher", "threads", "--json", *more.split()
        )
        assert code == 0, err
        found.append(json.loads(out.splitlines()[-1]))
        assert compare([Path(path)]).entries[0].is_checked is bool(kept)
    assert [result["run_id"] for result in found] == [kept, kept]
    assert found[0]["steps"] == found[1]["steps"]


@pytest.mark.parametrize(
    "name", ["events.rank0.jsonl", "events.rank1.jsonl", "worker.rank0.log", "checkpoints"]
)
def test_nothing_is_written_or_deleted_through_a_link_in_a_run_folder(here, shoal, name):
    path, outside = here / "runs/a" / name, here / "outside"
    outside.mkdir()
    target = outside / name
    if path.exists():
        path.rename(target)
    else:
        target.write_text("somebody's")
    (target / "step-000099.tmp" if target.is_dir() else outside / "other").mkdir()
    path.symlink_to(target)
    before = {each: each.is_file() and each.read_bytes() for each in sorted(outside.rglob("*"))}
    code, _, err = shoal("train", "--resume", "runs/a", "--epochs", "3")
    assert code == 2
    assert f"runs/a/{name}" in err
    assert "symbolic link" in err
    assert {each: each.is_file() and each.read_bytes() for each in sorted(outside.rglob("*"))} == before


@pytest.mark.parametrize("name", ["config.toml", "result.json", "model.safetensors", "metrics.csv"])
def test_a_link_in_place_of_a_whole_file_is_replaced_and_its_target_stays(here, shoal, name):
    path, target = here / "runs/a" / name, here / "outside"
    if path.exists():
        path.rename(target)
    else:
        target.write_text("step,epoch,training_loss\n")
    path.symlink_to(target)
    before = target.read_bytes()
    assert shoal("train", "--resume", "runs/a", "--epochs", "3", "--logger", "csv")[0] == 0
    assert target.read_bytes() == before
    assert not path.is_symlink()


def test_a_planted_link_with_the_name_of_a_temporary_file_is_not_followed(here):
    folder, target = RunFolder(here / "runs/a"), here / "outside"
    target.write_text("somebody's")
    temporary_beside(folder.result).symlink_to(target)
    folder.write_result(folder.read_result())
    assert target.read_text() == "somebody's"
    assert folder.read_result()["status"] == "completed"


def test_a_run_of_an_older_version_is_shown_and_called_unchecked(here, shoal):
    _, out, err = shoal("runs")
    assert err == ""
    assert [line for line in out.splitlines() if "unchecked" in line] == [
        line for line in out.splitlines() if " old " in line
    ]
    records = [json.loads(line) for line in shoal("runs", "--json")[1].splitlines()]
    assert {record["run"]: record["checked"] for record in records} == {
        "old": False,
        "a": True,
        "b": True,
        "pruned": True,
    }
    comparison = compare([here / "runs/old", here / "runs/a"])
    old, new = (" ".join(numbers_of(entry, EN).values()) for entry in comparison.entries)
    assert "unchecked" in old
    assert "unchecked" not in new
    assert len([note for note in notes(comparison, EN) if "unchecked" in note]) == 1
    assert checkpoint.latest(here / "runs/old/checkpoints").progress.step == 4
