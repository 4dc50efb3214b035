"""The checks of `shoal lab check 1`."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab1.check import steps, training

CHECKS = (
    Check(("zero_grad",), "MyOptimizer.py", alone(steps.zero_grad_faults)),
    Check(("gd_step",), "MyOptimizer.py", alone(steps.descent_faults, "GdOptimizer")),
    Check(("sgd_step",), "MyOptimizer.py", alone(steps.descent_faults, "SgdOptimizer")),
    Check(("adam_state", "adam_step"), "MyOptimizer.py", alone(steps.adam_faults)),
    Check(("batches",), "model.py", alone(training.batches_faults), course=False),
    Check(("train_step",), "model.py", alone(training.train_step_faults), course=False),
)
