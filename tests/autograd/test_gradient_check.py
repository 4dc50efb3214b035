import pytest
import torch

from shoal.autograd import Variable, gradient_check, ops
from shoal.autograd.tape import primitive
from shoal.errors import AutogradError


def test_a_right_gradient_passes():
    a = torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    assert gradient_check(lambda x, y: ops.log(x) * y + ops.exp(y), a, a + 1) < 1e-7


def test_a_wrong_rule_is_caught():
    @primitive()
    def halved(a):
        return a * 0.5

    halved.backward = (lambda g, c, a: g,)
    with pytest.raises(AutogradError, match=r"gradient of input 0 \(2,\) differs by 5.0e-01"):
        gradient_check(halved, torch.ones(2, dtype=torch.float64))


def test_single_precision_is_refused():
    with pytest.raises(AutogradError, match=r"needs torch.float64, but input 0 is torch.float32"):
        gradient_check(lambda a: a * a, torch.ones(2))


def test_inputs_are_left_as_they_were():
    a = torch.ones(2, dtype=torch.float64)
    gradient_check(lambda x: x * x, a)
    assert a.tolist() == [1.0, 1.0]
    assert isinstance(Variable(a), Variable)
