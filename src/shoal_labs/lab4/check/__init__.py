"""Checks of the student's program for Lab 4.

::

    parts      which run shows which task         observe     makes torch record what the program does
    mended     our solution in place of a task
    program    runs it as every worker            seen        the record
    judge      record → faults                    reports     the records of all workers, collected over RPC
    reference  the same network in one process
"""

from shoal_labs.check.fault import Check, parted
from shoal_labs.lab4.check.parts import task_faults

CHECKS = (
    Check(("stages",), "model.py", task_faults("stages"), run="program"),
    Check(("forward",), "model.py", task_faults("forward"), run="program"),
    Check(("init_parameters",), "dist_utils.py", task_faults("init_parameters"), run="program"),
    Check(("parameter_rrefs",), "dist_utils.py", task_faults("parameter_rrefs"), run="program"),
    Check(
        ("train_step",),
        "model.py",
        task_faults("train_step"),
        run="program",
        part=parted(loss=["not_a_float", "wrong_loss"]),
        parts=2,
    ),
    Check(
        ("forward_microbatches",),
        "model.py",
        task_faults("forward_microbatches"),
        optional=True,
        run="program",
    ),
)
