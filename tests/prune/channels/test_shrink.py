"""A shrunk network computes what the masked one computed, and has the widths it says."""

import copy
import re

import pytest
import torch
from shrinking import networks
from torch import nn

from shoal.config.sections.prune import ChannelsConfig
from shoal.errors import ConfigError
from shoal.prune.channels.choose import choose_channels, fixed_parts
from shoal.prune.channels.shrink import apply_masks, channel_masks, shrink

NETWORKS = networks()


def outputs(model, inputs):
    with torch.no_grad():
        return model.double().eval()(inputs.double() if inputs.is_floating_point() else inputs)


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_the_masked_network_computed(name, scope):
    model, inputs = NETWORKS[name]
    model = copy.deepcopy(model).double()
    kept = choose_channels(model, ChannelsConfig(sparsity=0.4, scope=scope))
    masked = copy.deepcopy(model)
    masks = channel_masks(masked, kept)
    apply_masks(masked, masks)
    shrink(model, kept, inputs)
    assert sum(p.numel() for p in model.parameters()) < 0.9 * sum(p.numel() for p in masked.parameters())
    expected = outputs(masked, inputs)
    assert expected.abs().max() > 0
    assert (outputs(model, inputs) - expected).abs().max() <= 1e-12 * expected.abs().max()
    # What is left are exactly the parameters that the masks keep.
    for key, param in model.named_parameters():
        kept_numel = int(masks[key].sum()) if key in masks else masked.get_parameter(key).numel()
        assert param.numel() == kept_numel, key


@pytest.mark.parametrize("name", NETWORKS)
def test_it_trains_as_the_masked_network_does(name):
    """Batch statistics and gradients are the same, too: nothing that is left depends on what was removed."""
    model, inputs = NETWORKS[name]
    model = copy.deepcopy(model).double().train()
    kept = choose_channels(model, ChannelsConfig(sparsity=0.4))
    masked = copy.deepcopy(model)
    masks = channel_masks(masked, kept)
    apply_masks(masked, masks)
    shrink(model, kept, inputs)
    for each in (masked, model):
        each(inputs.double() if inputs.is_floating_point() else inputs).square().sum().backward()
    for key, param in model.named_parameters():
        expected = masked.get_parameter(key).grad
        if key in masks:
            expected = expected[masks[key]].view(param.shape)
        assert (param.grad - expected).abs().max() <= 1e-9 * expected.abs().max().clamp(min=1e-9), key


def test_all_channels_of_resnet18_can_be_halved_residual_groups_included():
    model, inputs = copy.deepcopy(NETWORKS["resnet18"])
    assert fixed_parts(model) == []
    widths = shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), inputs)
    assert widths["conv1"] == {"out_channels": 2}
    assert widths["stage2.0.shortcut.conv"] == {"in_channels": 2, "out_channels": 4}
    assert widths["stage2.0.shortcut.norm"] == {"num_features": 4}
    assert widths["fc"] == {"in_features": 16}


def test_what_cannot_shrink_is_named():
    model, _ = NETWORKS["transformer"]
    (stream,) = fixed_parts(model)
    assert "tokens" in stream
    assert "blocks.0.norm1 normalises over all of them" in stream

    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x):
            return 2 * self.inner(x)

    model = nn.Sequential(nn.Linear(3, 4), Doubled(), nn.Linear(4, 2))
    reasons = fixed_parts(model)
    assert len(reasons) == 2
    assert all("1 is of type Doubled" in reason for reason in reasons)
    # Inside the unknown module, a sequence can still shrink.
    kept = choose_channels(model, ChannelsConfig(sparsity=0.5))
    assert [group.producers for group, _ in kept] == [["1.inner.0"]]
    shrink(model, kept, torch.randn(5, 3))
    assert model[1].inner[0].out_features == 4


def test_layers_that_share_parameters_or_are_used_twice_stay():
    layer = nn.Linear(6, 6)
    assert "used more than once" in fixed_parts(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(6, 2)))[0]
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    tied = nn.Sequential(first, second, nn.Linear(6, 2))
    assert all("shares its parameters" in reason for reason in fixed_parts(tied))


def test_a_model_that_skips_its_listed_layers_is_refused_before_anything_is_used():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

        def forward(self, x):
            hidden = self.body[0](x)
            return self.body[2](hidden.flip(-1).sigmoid())

    torch.manual_seed(0)
    model = Odd()
    with pytest.raises(ConfigError, match="does not compute what the masked one does"):
        shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), torch.randn(4, 3))


class ReadsTheMiddle(nn.Module):
    """As a U-Net does: a second layer reads what the first one of a sequence produces."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.net(x) + self.head(self.net[0](x))


class ReturnsADict(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return {"logits": self.net(x)}


class CastsToFloat32(ReturnsADict):
    def forward(self, x):
        return self.net(x.float())


def with_a_buffer_of_its_own():
    layer = nn.Linear(3, 8)
    layer.register_buffer("other", torch.ones(2))
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("make", "shape", "message", "hint"),
    [
        (ReadsTheMiddle, (4, 3), r"channels of net\.0 in a way", r"Name layers that can .*: net\.2\."),
        (
            # The norm's channels are in the second axis, the layer's in the last.
            lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
            (4, 8, 3),
            "channels of 0 in a way that cannot be followed",
            "or prune single weights",
        ),
        (ReturnsADict, (4, 3), "a model that returns a dict", "Return a tensor"),
        (
            CastsToFloat32,
            (4, 3),
            "a model that cannot compute in float64",
            "Leave the dtype to the parameters",
        ),
        (with_a_buffer_of_its_own, (4, 3), "channels of 0 in a way", "or prune single weights"),
    ],
    ids=["middle of a sequence", "norm over another axis", "dict", "float32", "buffer"],
)
def test_what_fails_without_some_channels_is_named_and_the_model_stays(make, shape, message, hint):
    torch.manual_seed(0)
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ConfigError, match=message) as refused:
        shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), torch.randn(shape))
    assert re.search(hint, refused.value.hint)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model(torch.randn(shape))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_weight_that_is_computed_from_other_parameters_stays():
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 8)), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(ConfigError) as refused:
        choose_channels(model, ChannelsConfig(sparsity=0.5))
    assert refused.value.hint == "None can shrink. 0: 0 computes its weight from other parameters."
    # The others could shrink, but torch cannot copy such a model.
    model.extend([nn.ReLU(), nn.Linear(2, 2)])
    with pytest.raises(ConfigError, match="cannot be copied: 0 computes its weight from other parameters"):
        shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), torch.randn(4, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sparsity": 0.95}, "sparsity 0.95 removes all 6 channels of conv1"),
        ({"layers": "conv9"}, r"(?s)matches 'conv9'.*conv1, conv2, fc1"),
    ],
)
def test_impossible_choices_name_the_layer(settings, message):
    with pytest.raises(ConfigError, match=message):
        choose_channels(NETWORKS["lenet"][0], ChannelsConfig(**settings))


def test_a_model_that_cannot_shrink_says_why():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(4), nn.Conv2d(4, 2, 3))
    with pytest.raises(ConfigError) as refused:
        choose_channels(model, ChannelsConfig(sparsity=0.5))
    assert refused.value.hint == "None can shrink. 0: 1 is of type PReLU, whose channels cannot be followed."
    with pytest.raises(ConfigError) as refused:
        choose_channels(nn.Sequential(nn.Linear(4, 2)), ChannelsConfig(sparsity=0.5))
    assert (
        refused.value.hint
        == "None can shrink. Of the only layer with channels, they are the model's outputs."
    )
