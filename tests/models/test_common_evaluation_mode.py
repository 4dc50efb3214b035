"""A model in evaluation mode for a while."""

import pytest
from torch import nn

from shoal.models.common import evaluation_mode


def test_every_module_gets_its_own_mode_back_also_after_an_error():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()  # a user has frozen its statistics
    with pytest.raises(TypeError), evaluation_mode(model):
        model("not a tensor")
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
