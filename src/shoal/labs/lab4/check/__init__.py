"""Checks of the student's program for Lab 4.

::

    parts      which run shows which task         observe     makes torch record what the program does
    program    runs it as every worker            seen        the record
    judge      record → faults                    reports     the records of all workers, collected over RPC
    reference  the same network in one process
"""

from shoal.labs.check.fault import Check
from shoal.labs.lab4.check.parts import part_faults

CHECKS = (
    Check(
        ("stages", "forward"),
        "model.py",
        part_faults("model"),
        run="program",
        blame={
            **dict.fromkeys(("not_split", "other_network", "no_shutdown", "__init__"), "stages"),
            **dict.fromkeys(("relu_missing", "other_scores", "unused", "forward"), "forward"),
        },
    ),
    Check(("init_parameters",), "dist_utils.py", part_faults("init"), run="program"),
    Check(("parameter_rrefs",), "dist_utils.py", part_faults("optimizer"), run="program"),
    Check(("train_step",), "model.py", part_faults("step"), run="program"),
    Check(("forward_microbatches",), "model.py", part_faults("microbatches"), optional=True, run="program"),
)
