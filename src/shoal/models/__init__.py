"""Models and losses, built from their configuration.

`build` returns a model whose initial weights depend only on the seed. `build_loss` returns the sum over samples that
training minimises. `check_fit` raises an error if model and labels do not fit. Each network is also a plain function
in its own module, which is enough to load a checkpoint::

    from safetensors.torch import load_file
    from shoal.models.lenet import lenet

    net = lenet()
    net.load_state_dict(load_file("model.safetensors"))
"""

from shoal.models.builder import build, without_weights
from shoal.models.check_fit import check_fit
from shoal.models.losses import build_loss

__all__ = ["build", "build_loss", "check_fit", "without_weights"]
