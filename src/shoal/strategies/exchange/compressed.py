"""Compressed gradients: workers exchange short codes, and each decodes the sum."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Codec, Form, Linear, Payload, check_payload, seed_of
from shoal.comm.group import Group, Work
from shoal.config.sections.compression import CompressedConfig, Encoding
from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Exchange, ParameterState, Then, pieces_under
from shoal.strategies.exchange.payloads import GatheredPayloads, SummedPayloads, all_finite
from shoal.strategies.strategy import TrainingClock

NOT_ENCODED = Encoding("none", {}, feedback=False)


class CodedParameter(NamedTuple):
    """One parameter in a bucket: its gradient is encoded by itself, so no bit depends on the plan of buckets."""

    param: str
    place: slice
    """Where its gradient is in the bucket."""
    form: Form
    codec: Codec
    feedback: bool


@dataclass
class Coded:
    """A gradient on its way: what this worker sends for it, and what it needs to decode."""

    unit: CodedParameter
    x: Tensor
    """The corrected gradient and the residual; finally, with feedback, what this worker did not send."""
    out: Tensor
    """The bucket's memory: first the gradient, finally the aggregate. Without feedback x is there, too."""
    memory: Tensor | None
    seeds: Sequence[int]
    """Those of all workers."""
    own_seed: int
    payload: Payload = ()
    basis: Tensor | None = None


@final
class Compressed(Exchange):
    """Phase 1, correct: add the residual, what earlier steps did not send. Phase 2, encode each parameter's gradient.

    Phase 3, all payloads of the bucket in one all-gather (`Linear` codecs: in an all-reduce). Phase 4, decode and add
    up in rank order: all workers hold the same bits. What this worker did not send becomes its residual.

    The residual r of a worker obeys x = g + r, r' = x − decode(encode(x)): in sum over the steps everything is sent,
    the last residual excepted. It follows its parameter and is saved in checkpoints, and so are the codecs' memories.

    Costs the declared bytes of each codec: W − 1 payloads received where they are gathered, 2·(W − 1)/W where they are
    summed. If the basis of a `Linear` codec depends on the gradients (PowerSGD), the call waits for one small
    all-reduce. Feedback keeps twice the memory of the gradients: the residual, and memory for the next one.

    If any worker's numbers are not finite, the aggregate is NaN, and residuals and memories stay as before this bucket:
    the guard then stops the run or leaves the step out.
    """

    def __init__(self, config: CompressedConfig, training: TrainingClock) -> None:
        self.config = config
        self._training = training
        self._residual = ParameterState()
        self._memory: dict[str, Tensor] = {}
        self._loaded: dict[str, Tensor] = {}
        """Memories from a checkpoint, until their parameters' first exchange."""
        self._units: dict[str, list[CodedParameter]] = {}
        """By the key of the bucket, once the warm-up is over."""
        self._remarks: set[str] = set()
        self._encoded: Collection[str] | None = None

    def encode_only(self, params: Collection[str]) -> None:
        """Send everything but the tensors of these parameters, or stretches of them, as it is."""
        self._encoded = params

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Encode, and start to exchange the payloads."""
        span = self._training.span
        with span("encode", "encode"):
            units, step = self._units_of(bucket, group.rank), self._training.step
            has_feedback = any(unit.feedback for unit in units)
            corrected = self._residual.spare(bucket) if has_feedback else bucket.gradients
            coded: list[Coded] = []
            for unit in units:
                x, out = (flat[unit.place].view(unit.form.shape) for flat in (corrected, bucket.gradients))
                memory = unit.codec.correct(out, self._memory_of(unit), group.size)
                common = isinstance(unit.codec, Linear)
                seeds = [seed_of(unit.param, step, None if common else rank) for rank in range(group.size)]
                coded.append(Coded(unit, x, out, memory, seeds, seeds[group.rank]))
            if has_feedback:
                torch.add(bucket.gradients, self._residual.flat(bucket), out=corrected)
            # Codecs that show it in their payloads spare a pass over the gradients.
            is_finite = all(unit.codec.shows_nonfinite for unit in units) or all_finite([corrected])
        summed = [one for one in coded if isinstance(one.unit.codec, Linear)]
        gathered = [one for one in coded if not isinstance(one.unit.codec, Linear)]
        sums = _sum(group, summed, is_finite, span) if summed else None
        rows = _gather(group, gathered, is_finite, span) if gathered else None

        def decode() -> None:
            with span("decode", "encode"):
                totals = list(zip(summed, sums.received(), strict=True)) if sums else []
                payloads = list(zip(gathered, rows.received(), strict=True)) if rows else []
                self._decode(bucket, totals, payloads, has_feedback)

        return Then([*(sums.works if sums else []), *([rows.work] if rows else [])], decode)

    def _decode(
        self,
        bucket: Bucket,
        summed: Sequence[tuple[Coded, Tensor]],
        gathered: Sequence[tuple[Coded, list[Payload]]],
        has_feedback: bool,
    ) -> None:
        """Make the bucket the aggregate, and keep what this worker did not send."""
        floats = [total for _, total in summed]
        floats += [tensor for _, payloads in gathered for payload in payloads for tensor in payload]
        if not all_finite(floats):
            bucket.gradients.fill_(torch.nan)
            return
        for one, total in summed:
            self._remember(one, (*one.payload[:-1], total), has_feedback)
            codec = one.unit.codec
            if isinstance(codec, Linear):
                codec.reconstruct(total, one.basis, one.out)
        for one, payloads in gathered:
            self._remember(one, one.payload, has_feedback)
            one.unit.codec.aggregate(payloads, one.out, one.seeds)
        if has_feedback:
            self._residual.use_spare(bucket)

    def _units_of(self, bucket: Bucket, rank: int) -> list[CodedParameter]:
        warmup = self.config.warmup
        progress = min(1.0, self._training.step / warmup) if warmup else 1.0
        if progress == 1.0 and bucket.key in self._units:
            return self._units[bucket.key]
        units: list[CodedParameter] = []
        for param, (place, shape) in zip(bucket.names, bucket.extents, strict=True):
            whole = param_of(param)
            is_sent_whole = self._encoded is not None and whole not in self._encoded
            encoding = NOT_ENCODED if is_sent_whole else self.config.encoding_of(whole)
            form = Form(shape, bucket.flat.dtype, bucket.flat.device)
            check_dtype(encoding.codec, param, form.dtype)
            chosen = build_codec(encoding)
            remark = chosen.remark(form)
            if remark and rank == 0 and remark not in self._remarks:
                self._remarks.add(remark)
                warnings.warn(remark, stacklevel=3)
            codec = chosen.fitted(form)
            codec = codec if progress == 1.0 else codec.warming(progress)
            units.append(CodedParameter(param, place, form, codec, encoding.feedback))
        if progress == 1.0:
            self._units[bucket.key] = units
        return units

    def _memory_of(self, unit: CodedParameter) -> Tensor | None:
        if unit.param not in self._memory:
            fresh = unit.codec.new_memory(unit.form, seed_of(unit.param, step=0))
            loaded = self._loaded.pop(unit.param, None)
            if fresh is not None:
                # What another codec or another rank saved is of no use.
                fits = loaded is not None and loaded.shape == fresh.shape
                self._memory[unit.param] = loaded if fits and loaded is not None else fresh
        return self._memory.get(unit.param)

    def _remember(self, one: Coded, payload: Payload, has_feedback: bool) -> None:
        """Keep a codec's memory for the next step, and make x what this worker did not send."""
        memory = one.unit.codec.remember(one.x, payload, one.memory, one.own_seed)
        if memory is not None:
            self._memory[one.unit.param] = memory
        if one.unit.feedback:
            one.unit.codec.subtract(one.x, one.payload, one.own_seed)
        elif has_feedback:
            one.x.zero_()

    def pieces(self) -> dict[str, Tensor]:
        """Residuals and memories, by parameter."""
        return {
            **{f"residual.{param}": tensor for param, tensor in self._residual.pieces().items()},
            **{f"memory.{param}": tensor for param, tensor in {**self._loaded, **self._memory}.items()},
        }

    def held(self) -> tuple[list[Tensor], list[Tensor]]:
        """All memory of the residuals, spares included, and the codecs' memories."""
        return self._residual.held(), [*self._memory.values()]

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore residuals and memories."""
        self._residual.load(pieces_under("residual.", pieces))
        self._memory = {}
        self._loaded = {param: tensor.clone() for param, tensor in pieces_under("memory.", pieces).items()}


def param_of(name: str) -> str:
    """The parameter that a tensor in a bucket belongs to: it may be a stretch of it.

    >>> param_of("fc1.weight[0:100]"), param_of("fc1.weight")
    ('fc1.weight', 'fc1.weight')
    """
    return name.rpartition("[")[0] if name.endswith("]") else name


def check_dtype(codec: str, param: str, dtype: torch.dtype) -> None:
    """Refuse gradients with too few digits to be rounded again, or for a factorisation."""
    if dtype.itemsize < 4 and codec not in ("none", "fp16", "bf16"):
        raise ConfigError(
            f"codec {codec} needs gradients in float32 or float64, but that of '{param}' is in "
            f"{str(dtype).removeprefix('torch.')}",
            "Use --exchange compressed:bf16, or keep the weights in float32.",
        )


def _gather(group: Group, coded: Sequence[Coded], is_finite: bool, span: SpanRecorder) -> GatheredPayloads:
    """Encode, and start the all-gather."""
    with span("encode", "encode"):
        for one in coded:
            one.payload = one.unit.codec.encode(one.x, one.own_seed, one.memory)
            check_payload(one.unit.codec, one.payload, one.unit.form, one.unit.param)
            if not is_finite:
                for tensor in one.payload:
                    if tensor.is_floating_point():
                        tensor.fill_(torch.nan)
    return GatheredPayloads(group, [one.payload for one in coded])


def _sum(group: Group, coded: Sequence[Coded], is_finite: bool, span: SpanRecorder) -> SummedPayloads:
    """Agree on bases, express the gradients in them, and start the all-reduce of the coordinates."""
    codecs = [one.unit.codec for one in coded if isinstance(one.unit.codec, Linear)]
    with span("encode", "encode"):
        proposals = [codec.propose(one.x, one.memory) for one, codec in zip(coded, codecs, strict=True)]
    sums = SummedPayloads(group, [proposal for proposal in proposals if proposal is not None])
    for work in sums.works:
        work.wait()
    agreed = iter(sums.received())
    coordinates: list[Tensor] = []
    with span("encode", "encode"):
        for one, codec, proposal in zip(coded, codecs, proposals, strict=True):
            total = None if proposal is None else next(agreed)
            one.basis = codec.basis(total, one.unit.form, one.own_seed)
            expressed = codec.express(one.x, one.basis, group.size)
            coordinates.append(expressed if is_finite else expressed.fill_(torch.nan))
            one.payload = (expressed,) if proposal is None or one.basis is None else (one.basis, expressed)
            check_payload(codec, one.payload, one.unit.form, one.unit.param, is_summed=True)
    return SummedPayloads(group, coordinates)
