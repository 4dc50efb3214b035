"""The check of Lab 4 on programs of students: right ones in several styles, and one for each typical error."""

import pytest
from stage_programs import DIST_UTILS, HELPER, RIGHT, WRONG, changed
from student_folders import written_by_student

from shoal.report.folder import write_files
from shoal_labs.check.solution import check_folders
from shoal_labs.handout.start import skeleton, solution
from shoal_labs.lab4.check.mended import replaceable
from shoal_labs.lab4.check.parts import initial_faults, microbatch_faults
from shoal_labs.lab4.check.program import Outcome, run_program
from shoal_labs.words import load_words

TWO_WORKERS = "command: python model.py --n_devices=2 --rank=0"
RAISES = "raise NotImplementedError"
PARTLY_DONE = {
    "one is not done": (
        {"parameter_rrefs": f'{RAISES}("Task parameter_rrefs: …")'},
        {"parameter_rrefs": "open"},
    ),
    "one is done": (
        {
            task: f'{RAISES}("Task {task}: …")'
            for task in ("stages", "init_parameters", "train_step", "forward_microbatches")
        }
        | {"forward": "pass"},
        dict.fromkeys(("stages", "init_parameters", "forward", "train_step", "forward_microbatches"), "open"),
    ),
    "one keeps the others from being reached": (
        {"stages": "self.stages = tuple(rpc.remote(first, kind) for kind in (ConvStage, FcStage, Pool))"},
        {"stages": "wrong"},
    ),
    "all layers are on one worker": (
        {"stages": "self.stages = tuple(rpc.remote(first, kind) for kind in (ConvStage, FcStage))"},
        {"stages": "wrong"},
    ),
}


def student(folder, replacements, **more):
    """The folder of a student whose program differs from the right one in some places."""
    write_files(folder, {"model.py": changed(RIGHT, replacements), "dist_utils.py": DIST_UTILS, **more})
    return folder


@pytest.fixture(scope="module")
def words_of(tmp_path_factory):
    """The verdict on every task of every folder; they are checked as a teacher checks a class."""
    root = tmp_path_factory.mktemp("class")
    write_files(root / "ours", solution("4"))
    own = student(root / "classes of its own", {})
    (own / ".#model.py").symlink_to("an@host.123:456")  # what Emacs leaves while the file is edited
    (own / "docker-compose.yml").mkdir()
    student(root / "no module", HELPER, **{"docker-compose.yml": TWO_WORKERS})
    write_files(root / "open", skeleton("4", "en"))
    for case, (bodies, _) in PARTLY_DONE.items():
        write_files(root / case, solution("4"))
        written_by_student(root / case, "4", **bodies)
    folders = sorted(root.iterdir())
    return {
        folder.name: {verdict.task: verdict.word for verdict in checked.verdicts}
        for folder, checked in zip(folders, check_folders("4", folders, jobs=2), strict=True)
    }


@pytest.mark.parametrize("name", ["ours", "classes of its own"])
def test_a_right_program_is_right_in_every_task(words_of, name):
    assert set(words_of[name].values()) == {"right"}


def test_a_model_that_is_no_module_on_two_workers_is_right(words_of):
    words = dict(words_of["no module"])
    assert words.pop("forward_microbatches") == "open"  # optional, and not offered
    assert set(words.values()) == {"right"}


def test_tasks_that_are_open_are_not_wrong(words_of):
    assert set(words_of["open"].values()) == {"open"}


@pytest.mark.parametrize(("key", "task"), [case for case in WRONG if case[0] != "seed_elsewhere"])
def test_a_typical_error_is_named_with_its_place(tmp_path, key, task):
    folder = student(tmp_path, WRONG[key, task])
    if task == "forward_microbatches":
        found = microbatch_faults(Outcome({}), run_program(folder, 3, 1, ["--micro=4"], 4), offered=True)
    else:
        found = run_program(folder, 3, 2, []).faults[task]
    assert [each.key for each in found] == [key]
    for lang in ("en", "zh"):
        sentence = load_words("shoal_labs.lab4", lang)(f"check.{key}", **found[0].values)
        assert "Traceback" not in sentence
        assert (".py:" in sentence) == (key not in {"relu_missing", "not_split", "no_shutdown"})


def test_a_seed_that_only_the_driver_sets_is_named(tmp_path):
    folder = student(tmp_path, WRONG["seed_elsewhere", "init_parameters"])
    runs = [run_program(folder, 3, 1, []) for _ in range(2)]
    (found,) = initial_faults(*runs, sets_seed=False)
    assert found.key == "seed_elsewhere"
    assert found.values["workers"] == ["worker1"]


def test_a_program_that_does_not_end_is_stopped_with_the_lines_where_workers_wait(tmp_path):
    folder = student(
        tmp_path, {"def train(args):\n": "def train(args):\n    import time; time.sleep(1000)\n"}
    )
    (found,) = run_program(folder, 3, 1, [], limit_s=4.0).faults["train_step"]
    assert found.key == "hangs"
    assert "worker0: model.py:" in found.values["where"]


@pytest.mark.parametrize("case", PARTLY_DONE)
def test_a_task_costs_its_own_points_alone(words_of, case):
    _, expected = PARTLY_DONE[case]
    found = words_of[case]
    assert found == dict.fromkeys(found, "right") | expected


def test_functions_of_another_form_are_not_replaced(tmp_path):
    assert replaceable(student(tmp_path, {})) == set()
