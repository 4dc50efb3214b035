"""Stand-ins for what a course's machine has and a grader's may not: a GPU, torchvision.

`install` replaces them in this process, before a student's files are imported. What is there is not replaced.
"""

from importlib.util import find_spec

import torch

from shoal_labs.check.standins import gpu, packages


def install() -> None:
    """Let code with `.cuda()` run on the processor, and `import torchvision` find the digits of the labs."""
    if not torch.cuda.is_available():
        gpu.install()
    if find_spec("torchvision") is None:
        packages.install()
