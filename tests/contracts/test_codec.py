"""One contract for all codecs: declared sizes, exact errors, published bias and contraction, lossless feedback."""

import math

import pytest
import torch
from codec_cases import CODECS, RANDOM, SHAPES, fitted, gradient, published_error, round_trip

from shoal.codecs.build import CODECS as TABLE
from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form
from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig

each_codec = pytest.mark.parametrize("name", CODECS)


def test_the_settings_and_the_table_know_the_same_codecs():
    assert TABLE.keys() == CODEC_ROWS.keys()
    built = {type(build_codec(CompressedConfig(codec=codec).encoding_of("weight"))) for codec in TABLE}
    assert built == {type(codec) for codec in CODECS.values()}


@each_codec
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_payload_has_the_declared_size(name, dtype):
    for shape in SHAPES:
        x = gradient(shape, dtype=dtype)
        codec, form, memory = fitted(CODECS[name], x)
        payload = codec.encode(x, 3, memory)
        assert [(tensor.dtype, tensor.numel()) for tensor in payload] == [*codec.fields(form)]
        assert sum(tensor.nbytes for tensor in payload) == codec.num_bytes(form)
        decoded = codec.decode(payload, form, 3)
        assert (decoded.shape, decoded.dtype) == (x.shape, x.dtype)


@each_codec
def test_decoded_and_error_make_the_gradient(name):
    for shape in SHAPES:
        x = gradient(shape)
        codec, form, memory = fitted(CODECS[name], x)
        payload = codec.encode(x, 5, memory)
        error = x.clone()
        codec.subtract(error, payload, 5)
        assert torch.allclose(codec.decode(payload, form, 5) + error, x, rtol=0, atol=1e-13)


@each_codec
def test_encoding_is_a_pure_function(name):
    x = gradient((9, 14))
    codec, _, memory = fitted(CODECS[name], x)
    kept, remembered = x.clone(), None if memory is None else memory.clone()
    first, second = codec.encode(x, 3, memory), codec.encode(x, 3, memory)
    assert all(map(torch.equal, first, second))
    assert torch.equal(x, kept)
    assert memory is None or torch.equal(memory, remembered)
    other = codec.decode(codec.encode(x, 4, memory), Form.of(x), 4)
    changes = not torch.equal(other, codec.decode(first, Form.of(x), 3))
    assert changes == (name in RANDOM), "the seed matters for random codecs alone"


@each_codec
def test_a_zero_gradient_stays_zero(name):
    x = torch.zeros(6, 11)
    assert torch.equal(round_trip(CODECS[name], x), x)


@each_codec
def test_bias_and_error_are_as_published(name):
    x, repeats = gradient((8, 12), seed=2), 300 if name in RANDOM else 1
    decoded = torch.stack([round_trip(CODECS[name], x, seed) for seed in range(repeats)])
    own = CODECS[name]
    if own.is_unbiased and repeats > 1:
        away = (decoded.mean(0) - x).abs()
        # 5 standard errors of the noisiest mean: of one that is rarely rounded up, the sample's own is too small.
        assert (away <= 5 * decoded.std(0).max() / math.sqrt(repeats)).all()
    if published := published_error(name, x):
        value, is_exact = published
        errors = (decoded - x).square().sum((1, 2)) / x.square().sum()
        margin = 5 * (errors.std() / math.sqrt(repeats) if repeats > 1 else 0.0) + 1e-12
        assert errors.mean() <= value + margin
        assert not is_exact or errors.mean() >= value - margin


def test_which_are_unbiased():
    unbiased = {name for name, codec in CODECS.items() if codec.is_unbiased}
    scaled = {"none", "int8", "int4", "terngrad", "randomk, scaled"}
    assert unbiased == scaled | {f"qsgd, {bits} bits" for bits in (2, 4, 16)}


CONTRACTIONS = CODECS.keys() - {"qsgd, 2 bits", "terngrad", "terngrad, clipped", "randomk, scaled"}


@pytest.mark.parametrize("name", sorted(CONTRACTIONS))
def test_with_feedback_the_sum_of_decoded_tends_to_the_sum(name):
    codec, form, memory = fitted(CODECS[name], gradient((8, 12)))
    steady = gradient((8, 12), seed=9)
    residual, total, sent = (torch.zeros_like(steady) for _ in range(3))
    behind = []
    for step in range(120):
        change = steady + 0.3 * gradient((8, 12), seed=step)
        x = change + residual
        payload = codec.encode(x, step, memory)
        total += change
        sent += codec.decode(payload, form, step)
        memory = codec.remember(x, payload, memory, step)
        residual = x.clone()
        codec.subtract(residual, payload, step)
        behind.append(((total - sent).norm() / total.norm()).item())
    assert torch.allclose(total - sent, residual, atol=1e-9), (
        "what was not sent is the residual, and nothing else"
    )
    assert behind[-1] <= max(0.45 * behind[9], 1e-3)
    assert behind[-1] <= 0.35


@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "qsgd, 4 bits", "sign", "onebit", "powersgd"])
def test_numbers_that_are_not_finite_stay_visible(name):
    x = gradient((9, 14))
    x[3, 4] = torch.nan
    assert not round_trip(CODECS[name], x).isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_payloads_show_bad_numbers_where_declared(bad):
    declared = {name: codec for name, codec in CODECS.items() if codec.shows_nonfinite}
    assert declared.keys() >= {"none", "powersgd"}
    for own in declared.values():
        x = gradient((9, 14))
        x[3, 4] = bad
        codec, _, memory = fitted(own, x)
        assert not all(tensor.isfinite().all() for tensor in codec.encode(x, 0, memory))
