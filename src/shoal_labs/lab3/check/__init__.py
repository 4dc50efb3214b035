"""The checks of `shoal lab check 3`."""

from shoal_labs.check.alone import alone
from shoal_labs.check.fault import Check, parted
from shoal_labs.check.program import in_its_form
from shoal_labs.lab3.check import course, epoch
from shoal_labs.lab3.check.samplers import sampler_faults

GIVEN = ("train_epoch", "read_idx", "load_data", "equally_many")
"""Functions by which model.py is known to be made from our hand-out."""
CHECKS = (
    *(
        Check((task,), "sampler.py", alone(sampler_faults, task), run="sampler")
        for task in ("set_epoch", "length", "random_partition")
    ),
    Check(
        ("random_sampling",),
        "sampler.py",
        in_its_form("MyRandomSampler", alone(sampler_faults, "random_sampling"), GIVEN, file="sampler.py"),
        course=False,
    ),
    Check(
        ("train_epoch",),
        "model.py",
        in_its_form("train_epoch", epoch.faults, GIVEN, course.train_epoch_faults),
        course=False,
        part=parted(**epoch.PARTS),
        parts=len(epoch.PARTS),
    ),
)
