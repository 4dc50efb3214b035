"""What a hang looks like in a terminal."""

from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.picture import picture, stacks
from shoal.launch.hangs.standing import Place, Standing

CALL = Call("0.1", "world", 12, "all_reduce", "float32[1000]", 4000)


def at(line, function="step"):
    return (Place("train.py", 5, "<module>", "main()", True), Place("train.py", line, function, "x", True))


def test_ranks_in_the_same_place_share_a_row_and_the_missing_one_is_marked():
    crowd = [Standing(rank, "waits", CALL, 31.0 + rank, stack=at(41)) for rank in range(16)]
    crowd[1] = Standing(1, "runs", stack=at(77, "validate"))
    rows = picture(crowd, [1], "missing")
    assert len(rows) == 2
    assert rows[0].startswith("ranks 0, 2-15  waiting 46 s in all_reduce #12 of world, float32[1000]  ")
    assert rows[0].endswith("train.py:41 in step")
    assert rows[1].startswith("rank 1 ")
    assert rows[1].endswith("← missing")
    assert "train.py:77 in validate" in rows[1]


def test_sixteen_ranks_in_sixteen_places_stay_a_screenful():
    crowd = [Standing(rank, "runs", stack=at(rank) * 20) for rank in range(16)]
    shown = picture(crowd) + stacks(crowd)
    assert len(shown) <= 60
    assert all(len(line) < 120 for line in shown)


def test_the_guilty_ranks_stack_comes_first():
    lines = stacks([Standing(0, "runs", stack=at(1)), Standing(1, "runs", stack=at(2))], [1])
    assert [line for line in lines if line.startswith("rank")] == ["rank 1:", "rank 0:"]
