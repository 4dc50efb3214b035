"""Programs of torch's that hang: who is missing is named, and the picture shows where every rank is."""

import subprocess

import pytest
from launching import HERE, command, environment

from shoal.errors import WorkerError
from shoal.launch.process.template import keeping_templates
from shoal.launch.programs import by_processes

PROGRAM = str(HERE / "hanging_program.py")
PLANTED = {
    "wrong_order": ("rank 0 calls broadcast", "rank 0", "another call"),
    "other_shape": ("rank 1 calls all_reduce(float32[500])", "rank 1", "another call"),
    "missing": ("rank 1 has not reached all_reduce #2", "rank 1", "missing"),
    "left": ("rank 1 has finished without all_reduce #1", "rank 1", "gone"),
    "caught": ("rank 1 has not reached all_reduce #1", "rank 1", "missing"),
    "alone": ("rank 0 calls barrier() as collective #2", "rank 0", "another call"),
    "branch": ("rank 0 calls all_reduce(float32[930])", "rank 0", "another call"),
    "skipped_backward": ("ranks 1, 2 have not reached all_reduce", "ranks 1, 2", "missing"),
    "send": ("rank 1 has not called recv", "rank 1", "missing"),
    "wrong_member": ("rank 1 has not reached all_reduce #1 of world[0,1]", "rank 1", "elsewhere"),
    "sharded": ("rank 1 has not reached all_gather", "rank 1", "missing"),
    "asynchronous": ("ranks 1, 2 have not reached all_reduce #2", "ranks 1, 2", "missing"),
    "no_group": ("rank 1 has not reached init_process_group", "rank 1", "missing"),
}
"""The case: how the sentence begins, the rank that is marked, and as what."""


@pytest.fixture(scope="module", autouse=True)
def _one_template():
    with keeping_templates():
        yield


@pytest.mark.long
@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_hang_is_named_with_the_rank_and_the_call(launching_here, case):
    sentence, rank, mark = PLANTED[case]
    with pytest.raises(WorkerError) as caught:
        by_processes(PROGRAM, [case], 3, timeout_s=1.5)
    error = caught.value
    assert error.message.startswith(sentence)
    assert error.exit_code == 2
    rows = [line for line in error.hint.splitlines() if line.startswith("rank") and not line.endswith(":")]
    assert [row.split("  ")[0] for row in rows if row.endswith(f"← {mark}")] == [rank]
    shown = {number for number in range(3) for row in rows if str(number) in row.split("  ")[0]}
    assert shown == {0, 1, 2}
    if mark == "missing":
        assert "hanging_program.py" in error.message


@pytest.mark.long
@pytest.mark.parametrize("case", ["healthy", "refused"])
def test_what_only_looks_like_a_mistake_is_no_error(launching_here, case):
    by_processes(PROGRAM, [case], 3, timeout_s=20.0)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::shoal.comm.group.SlowMemberWarning")
def test_of_a_group_of_ours_the_picture_shows_all_ranks_too(launching_here):
    with pytest.raises(WorkerError, match="rank 1 has not reached all_reduce") as caught:
        by_processes(PROGRAM, ["ours"], 3, timeout_s=1.5)
    *_, others, guilty = caught.value.hint.splitlines()
    assert others.startswith("ranks 0, 2  gave up on rank 1")
    assert guilty.startswith("rank 1 ")
    assert guilty.endswith("in validate  ← blamed")


@pytest.mark.long
def test_torchs_own_limit_names_the_missing_rank_too(launching_here):
    with pytest.raises(WorkerError, match="rank 1 has not reached all_reduce #1"):
        by_processes(PROGRAM, ["torch_gives_up"], 2, timeout_s=60.0)


@pytest.mark.long
def test_the_picture_stands_in_the_box_without_a_terminal():
    ended = subprocess.run(
        command("launch", "--workers", "2", "--timeout", "1.5", PROGRAM, "missing"),
        env=environment(NO_COLOR="1"), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert all(line[0] in "┌│└" for line in ended.stderr.splitlines())
    assert "\033" not in ended.stderr
