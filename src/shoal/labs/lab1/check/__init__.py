"""What `shoal lab check 1` tries."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab1.check import steps, training

CHECKS = (
    Check(("zero_grad",), "MyOptimizer.py", alone(steps.zero_grad)),
    Check(("gd_step",), "MyOptimizer.py", alone(steps.gd_step)),
    Check(("sgd_step",), "MyOptimizer.py", alone(steps.sgd_step)),
    Check(("adam_state", "adam_step"), "MyOptimizer.py", alone(steps.adam_step)),
    Check(("batches",), "model.py", alone(training.batches)),
    Check(("train_step",), "model.py", alone(training.train_step)),
)
