"""The checks of `shoal lab check autograd`."""

from shoal_labs.autograd.check import chain_rule, operations
from shoal_labs.check.alone import alone
from shoal_labs.check.fault import Check

CHECKS = (
    Check(("mul",), "tape.py", alone(operations.operation_faults, "mul")),
    Check(("add",), "tape.py", alone(operations.operation_faults, "add")),
    Check(("sum",), "tape.py", alone(operations.operation_faults, "sum")),
    Check(("expand",), "tape.py", alone(operations.operation_faults, "expand")),
    Check(("grad",), "tape.py", alone(chain_rule.grad_faults)),
)
