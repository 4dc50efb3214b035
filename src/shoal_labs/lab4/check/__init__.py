"""Checks of the student's program for Lab 4.

::

    parts      which run shows which task         observe     makes torch record what the program does
    mended     our solution in place of a task
    program    runs it as every worker            seen        the record
    judge      record → faults, beside the same network in one process
"""

from shoal_labs.check.fault import Check

CHECKS = tuple(
    Check(
        (task,),
        file,
        args=(task,),
        folder="shoal_labs.lab4.check.parts:task_faults",
        optional=task == "forward_microbatches",
        run="program",
        parts={"step": (), "loss": ("not_a_float", "wrong_loss")} if task == "train_step" else {},
    )
    for task, file in {
        "stages": "model.py",
        "forward": "model.py",
        "init_parameters": "dist_utils.py",
        "parameter_rrefs": "dist_utils.py",
        "train_step": "model.py",
        "forward_microbatches": "model.py",
    }.items()
)
