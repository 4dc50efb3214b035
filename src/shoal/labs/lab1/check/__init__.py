"""The checks of `shoal lab check 1`."""

from shoal.labs.check.alone import observed
from shoal.labs.check.fault import Check, parted
from shoal.labs.lab1.check import steps, training

CHECKS = (
    Check(("zero_grad",), "MyOptimizer.py", observed(steps.cleared, steps.zero_grad_faults)),
    Check(("gd_step",), "MyOptimizer.py", observed(steps.descended, steps.descent_faults, "GdOptimizer")),
    Check(("sgd_step",), "MyOptimizer.py", observed(steps.descended, steps.descent_faults, "SgdOptimizer")),
    Check(
        ("adam_state", "adam_step"),
        "MyOptimizer.py",
        observed(steps.adapted, steps.adam_faults),
        blame={
            **dict.fromkeys((*steps.WRONG_ADAMS, *steps.OTHER_RULES, "step"), "adam_step"),
            **dict.fromkeys(("adam_shared", "adam_shares_state", "__init__"), "adam_state"),
        },
    ),
    Check(
        ("batches",),
        "model.py",
        observed(training.all_passes, training.batches_faults),
        course=False,
        part=training.batches_part,
        parts=len(training.OPTIMIZERS),
    ),
    Check(
        ("train_step",),
        "model.py",
        observed(training.trained, training.train_step_faults),
        course=False,
        part=parted(**training.PARTS),
        parts=len(training.PARTS),
    ),
)
