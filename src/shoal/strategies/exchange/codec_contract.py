"""The contract of a codec, as checks that run: on our own codecs in the tests, on a user's in `shoal check codec`."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

import torch
from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Codec, Form, Payload, check_payload
from shoal.comm.alone import alone
from shoal.config.sections.compression import AUTO, CompressedConfig
from shoal.errors import ConfigError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exam import Broken, Check, Verdict, examined
from shoal.strategies.exchange.payloads import Packing, all_finite
from shoal.strategies.strategy import TrainingClock

PARAM = "weight"
FORMS = [
    Form(shape, dtype)
    for dtype in (torch.float64, torch.float32)
    for shape in ((0,), (1,), (2,), (257,), (65_537,), (9, 14), (4, 3, 5))
]
MATRIX = Form((12, 16), torch.float64)
GROUPS = 32
"""Independent estimates of the squared bias; the interval is 4 of their standard errors."""
DRAWS = (4, 16, 64)
"""For each of a group's two means; more where fewer decide nothing."""
UNBIASED, EXACT = 0.05, 1e-6
"""A bias is small below the first, as a part of the gradient's norm, and rounding below the second."""
STEPS = 400
GROWTH = 1.8
"""A residual that grows in proportion to the steps grows by 2.3 between the quarters that are compared."""


@dataclass(frozen=True)
class CodecSubject:
    """The codec to check: how a worker builds it, and the exchange that uses it."""

    config: CompressedConfig

    def __post_init__(self) -> None:
        if self.config.codec == AUTO:
            raise ConfigError("auto is no codec: it chooses one", "Name a codec, or your own: module:Class.")
        build_codec(self.config.encoding_of(PARAM))  # what cannot be constructed cannot be checked

    @property
    def feedback(self) -> bool:
        """Whether it gets what it dropped again."""
        return self.config.encoding_of(PARAM).feedback

    def make(self, form: Form) -> Codec:
        """One worker's codec for such a gradient."""
        return build_codec(self.config.encoding_of(PARAM)).fitted(form)


def examine_codec(subject: CodecSubject) -> Iterator[Verdict]:
    """Check all clauses that apply, in order; without the declared size there is no other."""
    return examined(CLAUSES, subject, _described)


# The clauses. The table at the end says what each requires.


def _declared_size(subject: CodecSubject, form: Form) -> str:
    codec = subject.make(form)
    payload = codec.encode(_gradient(form), 3, codec.new_memory(form, 1))
    check_payload(codec, payload, form, PARAM)
    is_told = form.dtype == torch.float32 and len(form.shape) == 1
    return f"{form.numel:,} float32 in {codec.num_bytes(form):,} bytes" if is_told else ""


def _decodes(subject: CodecSubject, form: Form) -> None:
    codec, x = subject.make(form), _gradient(form)
    kept = x.clone()
    payload = codec.encode(x, 3, codec.new_memory(form, 1))
    if not _same_bits(x, kept):
        raise Broken("encode changed the gradient")
    decoded = _received(codec, payload, form, 3)
    if (decoded.shape, decoded.dtype) != (x.shape, x.dtype):
        shape = " × ".join(map(str, decoded.shape)) or "()"
        raise Broken(f"decode returned {shape} in {_name(decoded.dtype)}")
    codec.subtract(x, payload, 3)
    away = (decoded + x - kept).abs().amax().item() if x.numel() else 0.0
    allowed = 8 * torch.finfo(form.dtype).eps * (kept.norm() + decoded.norm()).item()
    if not away <= allowed:
        raise Broken(f"subtract leaves an error that is {away:.3g} away from x − decode(payload)")


def _deterministic(subject: CodecSubject, form: Form) -> None:
    x, workers = _gradient(form), (subject.make(form), subject.make(form))
    payloads = [codec.encode(x.clone(), 3, codec.new_memory(form, 1)) for codec in (*workers, workers[0])]
    for payload, who in zip(payloads[1:], ("another worker", "the same worker, again,"), strict=True):
        for place, (one, other) in enumerate(zip(payloads[0], payload, strict=True)):
            if not _same_bits(one, other):
                raise Broken(
                    f"{who} encodes the same gradient with the same seed differently (tensor {place})"
                )
    here, there = (_received(codec, payloads[0], form, 3) for codec in workers)
    if not _same_bits(here, there):
        raise Broken("two workers decode the same payload differently")


def _zeros(subject: CodecSubject, form: Form) -> None:
    codec, zeros = subject.make(form), torch.zeros(form.shape, dtype=form.dtype)
    decoded = _received(codec, codec.encode(zeros, 3, codec.new_memory(form, 1)), form, 3)
    if decoded.any():  # NaN is not zero, too
        raise Broken(f"zeros are decoded as {decoded.flatten()[decoded.flatten().nonzero()[0]].item():.3g}")


def _nonfinite(subject: CodecSubject, form: Form) -> None:
    """As the exchange sends it: it marks every floating-point tensor, unless the codec says that it shows it."""
    for bad in (math.nan, math.inf, -math.inf):
        codec, x = subject.make(form), _gradient(form)
        x.view(-1)[-1] = bad
        payload = codec.encode(x, 3, codec.new_memory(form, 1))
        check_payload(codec, payload, form, PARAM)
        if codec.shows_nonfinite and all_finite(payload):
            raise Broken(
                f"it declares shows_nonfinite, but no number of the payload of a gradient with {bad} shows it"
            )
        if not any(tensor.is_floating_point() for tensor in payload):
            raise Broken(
                f"workers cannot tell that a gradient has {bad}: give the payload a floating-point tensor, "
                "such as a scale; the exchange marks it"
            )


def _bias(subject: CodecSubject, form: Form) -> str:
    codec, x = subject.make(form), _gradient(form)
    memory, norm = codec.new_memory(form, 1), x.norm().item()

    def error(seed: int) -> Tensor:
        """As a part of the gradient's norm."""
        return (_received(codec, codec.encode(x, seed, memory), form, seed) - x).flatten() / norm

    first = error(0)
    if all(torch.equal(error(seed), first) for seed in range(1, 5)):
        away = first.norm().item()
        if codec.is_unbiased and away > EXACT:
            raise Broken(f"it declares is_unbiased, but no seed changes it, and it is {_percent(away)} off")
        return f"deterministic, and {_percent(away)} off"
    found = verdict = "undecided"
    for draws in DRAWS:
        if verdict == "undecided":
            low, high = _size_of_mean(error, draws)
            verdict = "biased" if low > EXACT else "unbiased" if high <= UNBIASED else "undecided"
            off = f"{_percent(low)} to {_percent(high)} off"
            found = f"{verdict}: the mean of {2 * GROUPS * draws:,} draws is {off}"
    if verdict == "biased" and codec.is_unbiased:
        raise Broken(f"it declares is_unbiased, but is {found}")
    return found


def _size_of_mean(error: Callable[[int], Tensor], draws: int) -> tuple[float, float]:
    """Between which numbers the norm of the mean error is.

    The product of two independent means has the squared norm as its own mean, whatever the noise is like.
    """
    seeds = torch.arange(2 * GROUPS * draws).view(GROUPS, 2, draws)
    means = [[torch.stack([error(int(seed)) for seed in half]).mean(0) for half in group] for group in seeds]
    squares = torch.stack([one.dot(other) for one, other in means])
    middle, margin = squares.mean().item(), 4 * squares.std().item() / math.sqrt(GROUPS)
    return math.sqrt(max(0.0, middle - margin)), math.sqrt(max(0.0, middle + margin))


def _feedback(subject: CodecSubject, form: Form) -> str:
    """What was not sent is the residual, so it must not grow from step to step."""
    clock, steady = TrainingClock(), _gradient(form)
    exchange = Compressed(replace(subject.config, layers=(), warmup=0), clock)
    group, draw, norms = alone(), torch.Generator().manual_seed(4), list[float]()
    for clock.step in range(STEPS):
        gradient = steady + 0.5 * steady.std() * torch.randn(form.shape, generator=draw, dtype=form.dtype)
        exchange(group, Bucket.of(PARAM, gradient)).wait()
        residual = exchange.pieces()[f"residual.{PARAM}"]
        norms.append((residual.norm() / steady.norm()).item())
    quarter = STEPS // 4
    early, late = (sum(norms[start : start + quarter]) / quarter for start in (quarter, STEPS - quarter))
    if not late <= GROWTH * early + EXACT:
        raise Broken(
            f"the residual grows: {early:.3g} gradients in steps {quarter} to {2 * quarter}, {late:.3g} in the last "
            f"{quarter} of {STEPS}; it must send a part of every gradient, or run with --exchange.feedback false"
        )
    return f"a residual of {late:.3g} gradients after {STEPS} steps"


# What they share.


def _gradient(form: Form) -> Tensor:
    """Numbers of both signs, from a hundredth to ten."""
    draw = torch.Generator().manual_seed(form.numel)
    spread = 10 ** (3 * torch.rand(form.shape, generator=draw, dtype=torch.float64) - 2)
    return (torch.randn(form.shape, generator=draw, dtype=torch.float64) * spread).to(form.dtype)


def _received(codec: Codec, payload: Payload, form: Form, seed: int) -> Tensor:
    """What another worker decodes: the tensors arrive flat, as parts of one message."""
    packing = Packing.of([payload])
    return codec.decode(packing.unpack(packing.pack([payload]))[0], form, seed)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    same_form = (one.shape, one.dtype) == (other.shape, other.dtype)
    return same_form and torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return (
        tensor.contiguous().view(-1).view(torch.uint8)
        if tensor.numel()
        else tensor.new_empty(0, dtype=torch.uint8)
    )


def _described(form: Form) -> str:
    return f"{' × '.join(map(str, form.shape))} {_name(form.dtype)}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _all_forms(subject: CodecSubject) -> list[Form]:
    return FORMS


def _a_matrix(subject: CodecSubject) -> list[Form]:
    return [MATRIX]


CLAUSES: dict[str, Check] = {
    "declared size": Check("the payload has the tensors that `fields` declares", _declared_size, _all_forms),
    "decodes": Check(
        "what is decoded and the error are the gradient, of its shape and dtype", _decodes, _all_forms
    ),
    "deterministic": Check("gradient and seed decide every bit, on any worker", _deterministic, _all_forms),
    "zeros": Check("a gradient of zeros stays zero", _zeros, _all_forms),
    "not finite": Check("NaN and infinity stay visible, and change no size", _nonfinite, _a_matrix),
    "bias": Check("the mean over the seeds is the gradient, if it declares is_unbiased", _bias, _a_matrix),
    "feedback": Check(
        "what is not sent stays bounded from step to step", _feedback, _a_matrix, attrgetter("feedback")
    ),
}
"""All clauses, in the order of checking."""
