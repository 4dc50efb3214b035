"""`shoal bench collectives`: every group and algorithm measured in one run, every result right."""

import json
import subprocess
import sys

SMALL = ["-b", "1K", "-e", "4K", "--seconds", "0.02", "--workers", "2"]


def bench(*words):
    command = [sys.executable, "-m", "shoal", "bench", "collectives", *SMALL, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_groups_and_algorithms_take_turns_and_nothing_is_wrong():
    found = json.loads(bench("--group", "shm,gloo,gloo+checked", "--algorithm", "ring", "--json"))
    assert found["workers"] == 2
    names = {row["contender"] for row in found["rows"]}
    assert {"shm", "shm (own memory)", "gloo", "gloo+checked", "ring on gloo", "memory"} <= names
    assert {row["size"] for row in found["rows"]} == {1024, 4096}
    assert all(row["wrong"] == 0 and row["time_us"] > 0 for row in found["rows"])


def test_another_operation_as_a_table_for_people():
    table = bench("--op", "all_gather", "--group", "shm")
    for column in ("size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"):
        assert column in table
