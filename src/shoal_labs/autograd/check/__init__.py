"""The checks of `shoal lab check autograd`."""

from shoal_labs.check.fault import Check

TAPE = "shoal_labs.autograd.check.tape"
CHECKS = (
    *(
        Check((name,), "tape.py", f"{TAPE}:operation_faults", args=(name,))
        for name in ("mul", "add", "sum", "expand")
    ),
    Check(("grad",), "tape.py", f"{TAPE}:grad_faults"),
)
