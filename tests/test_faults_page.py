"""The page of faults names tests that exist, and every fault test of the launchers stands on it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def names_in(*files):
    return {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    }


def test_the_table_and_the_tests_are_the_same():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/en/faults.md").read_text()))
    faults = names_in("processes/test_faults.py", "launch/test_run.py")
    others = names_in("processes/test_launch.py", "launch/test_threads.py", "cli/test_launch.py")
    others |= names_in(
        "launch/process/test_processes.py",
        "launch/process/test_template.py",
        "launch/test_supervise.py",
        "cli/test_interrupts.py",
    )
    others |= names_in("processes/test_programs.py", "processes/test_group_faults.py")
    others |= names_in(
        "processes/test_tensor_faults.py", "processes/test_server.py", "processes/test_disks.py"
    )
    others |= names_in(
        "processes/test_strangers.py", "comm/rendezvous/test_meet.py", "comm/rendezvous/test_secret.py"
    )
    others |= names_in("cli/test_entry.py", "cli/test_main.py", "training/test_checkpoint.py")
    others |= names_in("training/test_stop.py", "launch/process/test_forks.py", "processes/test_rpc.py")
    others |= names_in("labs/test_command.py", "cli/test_compare.py", "processes/test_hangs.py")
    others |= names_in("processes/test_networks.py", "comm/rendezvous/test_network.py")
    assert named - faults - others == set()
    assert faults - named == set()
