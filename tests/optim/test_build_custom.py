"""A user's optimizer that cannot be had is explained in one sentence."""

import pytest
import torch

from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.optim import build


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (Custom("no_such_package.optim:Mine"), "there is no module 'no_such_package'"),
        (
            Custom("torch.optim:Adagrat"),
            "unknown name in module torch.optim 'Adagrat': did you mean 'Adagrad'?",
        ),
        (Custom("math:pi"), "math:pi is of type float, and cannot be called"),
        (Custom("torch.optim:SGD", (("speed", 3),)), "cannot be called with speed=3: .*'speed'"),
        (Custom("torch.optim:SGD", (("lr", -1.0),)), "cannot be built with lr=-1.0: Invalid learning rate"),
        (Custom("builtins:list"), "returned a value of type list, expected a torch.optim.Optimizer"),
    ],
)
def test_what_is_wrong_is_said(config: Custom, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build(config, [torch.zeros(2, requires_grad=True)])
