"""Models and losses, built from their configuration.

`build` gives a model whose first weights depend on the seed alone; `build_loss` gives the sum over samples
that training minimises; `check_fit` says in a sentence why a model and a set of labels do not go together.
Each network also has a plain function in a file of its own, which is all that a checkpoint needs::

    from safetensors.torch import load_file
    from shoal.models.lenet import lenet

    net = lenet()
    net.load_state_dict(load_file("model.safetensors"))
"""

from shoal.models.builder import build
from shoal.models.fit import check_fit
from shoal.models.losses import build_loss

__all__ = ["build", "build_loss", "check_fit"]
