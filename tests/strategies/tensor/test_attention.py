"""Torch's attention and transformer layers, divided: outputs, weights and gradients of the whole module."""

import copy

import pytest
import torch
from torch import nn

import shoal
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.errors import ConfigError
from shoal.strategies.tensor.automatic import automatic_plan
from shoal.strategies.tensor.divide import divide

N, LENGTH, KEYS, WIDTH, HEADS = 3, 5, 7, 8, 4
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
DRAW = torch.Generator().manual_seed(0)


def numbers(*shape):
    return torch.randn(shape, generator=DRAW, dtype=torch.float64)


def seeded(module):
    module = module.double()
    with torch.no_grad():
        for param in module.parameters():
            param.copy_(numbers(*param.shape))
    return module


class Model(nn.Module):
    """A module as a layer of a model, so that a plan can name it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = seeded(layer)


def attention(**options):
    return Model(nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True, **options}))


SELF, QUERIES, CONTEXT = numbers(N, LENGTH, WIDTH), numbers(N, LENGTH, WIDTH), numbers(N, KEYS, WIDTH)
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
PADDED = torch.arange(KEYS) >= torch.tensor([[7], [5], [2]])
NO_WEIGHTS = {"need_weights": False}
CASES = {
    "itself": ({}, (SELF,) * 3, {}),
    "itself, no weights": ({}, (SELF,) * 3, NO_WEIGHTS),
    "no bias": ({"bias": False}, (SELF,) * 3, NO_WEIGHTS),
    "length first": ({"batch_first": False}, (SELF,) * 3, {"average_attn_weights": False}),
    "one sample": ({}, (SELF[0],) * 3, {}),
    "one sample, a mask for each head": ({}, (SELF[0],) * 3, {"attn_mask": numbers(HEADS, LENGTH, LENGTH)}),
    "causal": ({}, (SELF,) * 3, {"attn_mask": CAUSAL, "is_causal": True, **NO_WEIGHTS}),
    "causal with weights": ({}, (SELF,) * 3, {"attn_mask": CAUSAL, "is_causal": True}),
    "causal and padded": (
        {},
        (SELF,) * 3,
        {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": PADDED[:, :LENGTH], **NO_WEIGHTS},
    ),
    "a mask for each head": (
        {},
        (SELF,) * 3,
        {"attn_mask": numbers(N * HEADS, LENGTH, LENGTH), "average_attn_weights": False},
    ),
    "numbers as masks": (
        {},
        (QUERIES, CONTEXT, CONTEXT),
        {"attn_mask": numbers(LENGTH, KEYS), "key_padding_mask": numbers(N, KEYS), **NO_WEIGHTS},
    ),
    "a context": ({}, (QUERIES, CONTEXT, CONTEXT), {"key_padding_mask": PADDED}),
    "three inputs": ({}, (QUERIES, CONTEXT, CONTEXT + 1), NO_WEIGHTS),
    "other widths": (
        {"kdim": 6, "vdim": 10},
        (QUERIES, numbers(N, KEYS, 6), numbers(N, KEYS, 10)),
        {},
    ),
}


def leaves(inputs):
    """The inputs as leaves; equal objects stay equal."""
    made = {id(each): each.clone().requires_grad_() for each in inputs}
    return [made[id(each)] for each in inputs]


def passed(model, inputs, options):
    """Outputs, and the gradients of a function of them, of the inputs and of all parameters."""
    inputs = leaves(inputs)
    outputs = model.layer(*inputs, **options)
    outputs = [each for each in (outputs if isinstance(outputs, tuple) else (outputs,)) if each is not None]
    sum((each * torch.linspace(1, 2, each.numel()).view_as(each)).sum() for each in outputs).backward()
    grads = {f"input {number}": each.grad for number, each in enumerate(inputs)}
    return [each.detach() for each in outputs], grads | {k: p.grad for k, p in model.named_parameters()}


def assert_divided_equals_whole(model, inputs, options, workers, plan=None):
    expected, expected_grads = passed(copy.deepcopy(model), inputs, options)
    copies = [copy.deepcopy(model) for _ in range(workers)]

    def work(group):
        mine = copies[group.rank]
        parts = divide(mine, group, plan or {"layer": "heads"})
        return passed(mine, inputs, options), parts

    for (outputs, grads), parts in run_threads(workers, work):
        assert len(outputs) == len(expected)
        for output, wanted in zip(outputs, expected, strict=True):
            torch.testing.assert_close(output, wanted, **CLOSE)
        assert grads.keys() == expected_grads.keys()
        for name, wanted in expected_grads.items():
            cut = parts.cuts.get(name)
            part = wanted if cut is None else cut.part(wanted, parts.group)
            torch.testing.assert_close(
                grads[name], part, **CLOSE, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("name", CASES)
def test_divided_heads_are_the_whole_attention(name):
    options, inputs, arguments = CASES[name]
    assert_divided_equals_whole(attention(**options), inputs, arguments, 4 if name == "a context" else 2)


LAYER = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 12, "dropout": 0.0, "batch_first": True}
MASKS = {"mask": CAUSAL, "is_causal": True}


def encoder(**options):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(**{**LAYER, **options}), 2, nn.LayerNorm(WIDTH))


def decoder():
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(**LAYER), 2)


STACKS = {
    "encoder": (encoder, (SELF,), {}),
    "causal": (encoder, (SELF,), MASKS),
    "padded": (encoder, (SELF,), {"src_key_padding_mask": PADDED[:, :LENGTH]}),
    "norm first, gelu, length first": (
        lambda: encoder(norm_first=True, activation="gelu", batch_first=False),
        (SELF,),
        {},
    ),
    "no bias": (lambda: encoder(bias=False), (SELF,), {}),
    "decoder": (decoder, (QUERIES, CONTEXT), {"tgt_mask": CAUSAL, "tgt_is_causal": True}),
    "one layer": (lambda: nn.TransformerEncoderLayer(**LAYER), (SELF,), {}),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("automatic", [True, False])
def test_divided_layers_are_the_whole_stack(name, automatic):
    make, inputs, arguments = STACKS[name]
    model = Model(make())
    plan = None
    if automatic:
        plan = automatic_plan(model, ThreadGroup.world(2)[0])
        assert set(plan.values()) == {"heads", "column", "divided", "row"}
    assert_divided_equals_whole(model, inputs, arguments, 2, plan)


@pytest.mark.parametrize(
    "plan", [{"layer": "heads"}, {"layer.layers.*.linear1": "column", "layer.layers.*.linear2": "row"}]
)
@pytest.mark.parametrize("arguments", [{}, {"src_key_padding_mask": PADDED[:, :LENGTH]}])
def test_evaluation_without_gradients_does_not_fuse_divided_layers(plan, arguments):
    model = Model(encoder()).eval()
    copies = [copy.deepcopy(model) for _ in range(2)]
    with torch.no_grad():
        expected = model.layer(SELF, **arguments)

    def work(group):
        with torch.no_grad():
            divide(copies[group.rank], group, plan)
            return copies[group.rank].layer(SELF, **arguments)

    hidden = torch.zeros(N, LENGTH, dtype=torch.bool)
    hidden = arguments.get("src_key_padding_mask", hidden)[..., None]
    for found in run_threads(2, work):
        # Torch's fused path leaves zeros where a sample is padded.
        torch.testing.assert_close(found.masked_fill(hidden, 0), expected.masked_fill(hidden, 0), **CLOSE)


def test_dropout_has_the_masks_of_one_machine():
    """With equal random states all workers draw the mask of all heads, and use their part."""
    model = attention(dropout=0.4)
    model.layer.train()
    torch.manual_seed(3)
    expected, _ = model.layer(SELF, SELF, SELF)
    afterwards = torch.get_rng_state()
    copies = [copy.deepcopy(model) for _ in range(2)]

    def work(group):
        divide(copies[group.rank], group, {"layer": "heads"})
        for turn in range(2):  # threads have one random state: they take turns
            group.barrier().wait()
            if turn == group.rank:
                layer = copies[group.rank].layer
                q, k, v = (layer._in_heads(each, True) for each in layer._projected(SELF, SELF, SELF))
                torch.manual_seed(3)
                seen = layer._weights(q, k, None) @ v
                assert torch.equal(torch.get_rng_state(), afterwards)
            group.barrier().wait()
        return layer._out_of_heads(seen, is_batched=True)

    for found in run_threads(2, work):
        torch.testing.assert_close(found, expected, **CLOSE)


class Words(nn.Module):
    """Words, an encoder, scores: as programs write it."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(10, WIDTH, padding_idx=0), encoder()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, text):
        hidden = text == 0
        return self.head(self.encoder(self.words(text), src_key_padding_mask=hidden).mean(1))


PLANS = {
    "words by rows": {"words": "row", "encoder": "heads", "head": "gather"},
    "words by columns": {"words": "gather", "encoder.layers.*.self_attn": "heads"},
    "automatic": None,
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_loop_of_ones_own_trains_like_one_machine(plan):
    text = torch.arange(4 * LENGTH).view(4, LENGTH) % 7
    labels = torch.arange(4) % 3
    start = seeded(Words())
    with torch.no_grad():
        start.words.weight[0] = 0

    def train(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(text), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        return losses

    whole = copy.deepcopy(start)
    expected = train(whole)
    copies = [copy.deepcopy(start) for _ in range(2)]

    def work(group):
        model = shoal.tensor_parallel(copies[group.rank], group, PLANS[plan], example=text)
        return train(model)

    assert run_threads(2, work) == [pytest.approx(expected, rel=1e-12)] * 2
    state = whole.state_dict()
    assert [name for name, _ in copies[1].named_parameters()] == [
        name for name, _ in whole.named_parameters()
    ]
    bias = copies[1].encoder.layers[1].self_attn.in_proj_bias
    torch.testing.assert_close(
        bias, state["encoder.layers.1.self_attn.in_proj_bias"].view(3, 2, -1)[:, 1].flatten(), **CLOSE
    )


@pytest.mark.parametrize(
    ("model", "workers", "message"),
    [
        (attention(), 3, "layer among 3 workers: it has 4 heads, not a multiple of 3"),
        (
            attention(add_bias_kv=True),
            2,
            "cannot divide layer: an attention with add_bias_kv or add_zero_attn",
        ),
        (attention(add_zero_attn=True), 2, "an attention with add_bias_kv or add_zero_attn"),
        (Model(encoder()), 3, "layer.layers.0.self_attn among 3 workers: it has 4 heads"),
        (Model(encoder(dim_feedforward=7)), 2, "layer.layers.0.linear1 among 2 workers: it has 7 outputs"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_numbers(model, workers, message):
    with pytest.raises(ConfigError, match=message):
        divide(model, ThreadGroup.world(workers)[0], {"layer": "heads"})
