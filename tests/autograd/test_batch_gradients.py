"""Training by our engines equals training by torch's, step for step."""

import pytest
import torch
import torch.nn.functional as F
from tests.autograd.networks import batch, lenet, mlp

from shoal.autograd import nn
from shoal.autograd.batch_gradients import build_loss, static_gradients, tape_gradients
from shoal.errors import AutogradError

ENGINES = {"tape": tape_gradients, "static": lambda *args: static_gradients(*args, say=lambda line: None)}


def largest_gap(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_lenet_trained_50_steps_equals_torch(engine):
    reference, module = lenet(seed=1), lenet(seed=1)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    layer = nn.from_torch(module)
    tensors = [parameter.value for parameter in nn.parameters(layer)]
    ours = torch.optim.SGD(tensors, lr=0.05, momentum=0.9)
    gradients = ENGINES[engine](layer, "cross_entropy")
    for step in range(50):
        inputs, labels = batch(4, seed=step)
        theirs.zero_grad()
        want = F.cross_entropy(reference(inputs), labels, reduction="sum")
        (want * 0.25).backward()
        theirs.step()
        ours.zero_grad()
        have = gradients(inputs, labels, 0.25)
        ours.step()
        assert not have.requires_grad
    assert have.item() == pytest.approx(want.item(), rel=1e-10)
    assert largest_gap(tensors, [param.detach() for param in reference.parameters()]) <= 1e-10
    assert not any(tensor.requires_grad for tensor in tensors)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_gradients_are_set_then_added_as_torch_does(engine, loss):
    reference, module = mlp(seed=2, widths=(784, 12, 10)), mlp(seed=2, widths=(784, 12, 10))
    layer = nn.from_torch(module)
    tensors = [parameter.value for parameter in nn.parameters(layer)]
    gradients = ENGINES[engine](layer, loss)
    for step, samples in enumerate([5, 5, 3, 0, 5]):  # shapes change, one batch is empty, gradients pile up
        inputs, labels = batch(samples, seed=step)
        outputs = reference(inputs)
        if loss == "mse":
            want = F.mse_loss(outputs, F.one_hot(labels, 10).double(), reduction="sum")
        else:
            want = F.cross_entropy(outputs, labels, reduction="sum")
        (want * 0.5).backward()
        assert gradients(inputs, labels, 0.5).item() == pytest.approx(want.item(), rel=1e-10)
        assert largest_gap([t.grad for t in tensors], [p.grad for p in reference.parameters()]) <= 1e-10


@pytest.mark.parametrize("engine", ENGINES)
def test_a_first_empty_batch_gives_zeros(engine):
    layer = nn.from_torch(lenet())
    gradients = ENGINES[engine](layer, "cross_entropy")
    assert gradients(*batch(0), 1.0).item() == 0.0
    assert all(parameter.value.grad.abs().max() == 0 for parameter in nn.parameters(layer))


@pytest.mark.parametrize("engine", ENGINES)
def test_on_final_fires_once_for_each_parameter_last_layer_first(engine):
    layer = nn.from_torch(lenet())
    names = {id(parameter.value): name for name, parameter in layer.named_parameters()}
    gradients = ENGINES[engine](layer, "cross_entropy")
    order: list[str] = []
    seen: dict[str, torch.Tensor] = {}

    def final(tensor: torch.Tensor) -> None:
        order.append(names[id(tensor)])
        seen[names[id(tensor)]] = tensor.grad.clone()
        tensor.grad.mul_(0.0)  # as a reducer may: what is still being computed must not notice

    for parameter in nn.parameters(layer):
        gradients.on_final(parameter.value, final)
    gradients(*batch(3), 1.0)
    assert sorted(order) == sorted(names.values())
    assert (
        order.index("fc2.weight")
        < order.index("fc1.weight")
        < order.index("conv2.weight")
        < order.index("conv1.weight")
    )

    reference = lenet()
    inputs, labels = batch(3)
    F.cross_entropy(reference(inputs), labels, reduction="sum").backward()
    for name, param in reference.named_parameters():
        assert largest_gap([seen[name]], [param.grad]) <= 1e-10


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_of_any_width(engine, dtype):
    layer = nn.from_torch(mlp(widths=(784, 10)))
    inputs, labels = batch(4)
    gradients = ENGINES[engine](layer, "cross_entropy")
    assert gradients(inputs, labels.to(dtype)).item() == gradients(inputs, labels).item()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_beyond_the_last_class_is_named(engine):
    layer = nn.from_torch(mlp(widths=(784, 10)))
    inputs, labels = batch(4)
    gradients = ENGINES[engine](layer, "cross_entropy")
    with pytest.raises(AutogradError, match="index 11 is out of bounds"):
        gradients(inputs, labels * 0 + 11)


def test_smoothing_is_torchs():
    outputs = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 4, 4])
    have = build_loss("cross_entropy", smoothing=0.1)(outputs, labels)
    want = F.cross_entropy(outputs, labels, reduction="sum", label_smoothing=0.1)
    assert have.item() == pytest.approx(want.item(), rel=1e-12)


def test_a_static_engine_follows_parameters_to_other_memory():
    layer = nn.from_torch(mlp(widths=(784, 10)))
    gradients = static_gradients(layer, "cross_entropy")
    before = gradients(*batch(4)).item()
    weight = nn.parameters(layer)[0].value
    weight.data = torch.zeros_like(weight)
    assert gradients(*batch(4)).item() != before


def test_unknown_losses_and_foreign_tensors_are_named():
    with pytest.raises(AutogradError, match="unknown loss of this engine 'hinge'"):
        build_loss("hinge")
    gradients = tape_gradients(nn.from_torch(mlp(widths=(784, 10))))
    with pytest.raises(AutogradError, match=r"a tensor of shape \(3,\) is not a parameter"):
        gradients.on_final(torch.ones(3), lambda tensor: None)
