"""Compressed pushes: a worker encodes its gradients for each server, and the server decodes them.

Each stretch of a parameter that one server holds is encoded by itself, with the codec of its parameter. The payloads of
all stretches of a server are one message, whose length follows from the settings and the step. What a codec drops is
added to the worker's next gradient (error feedback). Weights come back as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Codec, Form, Payload, check_payload, fields_of, seed_of
from shoal.config.sections.compression import CompressedConfig
from shoal.events.spans import SpanRecorder, silent
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.compressed import check_dtype
from shoal.strategies.exchange.exchange import pieces_under
from shoal.strategies.exchange.payloads import Packing, all_finite
from shoal.strategies.server.shards import range_of


class PushUnit(NamedTuple):
    """A stretch of a parameter that one server holds."""

    name: str
    """The parameter's, with the range if this is not all of it."""
    bucket: int
    place: slice
    """Where it is in the server's range of the bucket."""
    form: Form
    codec: Codec
    feedback: bool

    def of(self, ranges: Sequence[Tensor]) -> Tensor:
        """Its elements in flat ranges, one for each bucket."""
        return ranges[self.bucket][self.place].view(self.form.shape)


@final
class PushFormat:
    """The parts of a push to one server at every step: the same on the worker and on the server."""

    def __init__(
        self, config: CompressedConfig, buckets: Sequence[Bucket], server: int, servers: int
    ) -> None:
        self._warmup = config.warmup
        self.remarks: set[str] = set()
        """Warnings of the codecs for the user."""
        self.units = [
            unit
            for index, bucket in enumerate(buckets)
            for unit in self._units_of(config, bucket, index, range_of(bucket, server, servers))
        ]
        self._packing = Packing([fields_of(unit.codec, unit.form) for unit in self.units])

    def _units_of(
        self, config: CompressedConfig, bucket: Bucket, index: int, held: slice
    ) -> Iterator[PushUnit]:
        """The stretches of a bucket's parameters in the range that a server holds."""
        for param, (extent, shape) in zip(bucket.names, bucket.extents, strict=True):
            start, stop = max(extent.start, held.start), min(extent.stop, held.stop)
            if start >= stop:
                continue
            is_all = stop - start == extent.stop - extent.start
            name = param if is_all else f"{param}[{start - extent.start}:{stop - extent.start}]"
            form = Form(shape if is_all else (stop - start,), bucket.flat.dtype)
            encoding = config.encoding_of(param)
            check_dtype(encoding.codec, param, form.dtype)
            codec = build_codec(encoding)
            self.remarks |= {codec.remark(form)} - {""}
            place = slice(start - held.start, stop - held.start)
            yield PushUnit(name, index, place, form, codec.fitted(form), encoding.feedback)

    def at(self, step: int) -> tuple[list[Codec], Packing]:
        """The codecs of the units, and their places in the message; both change while the codecs warm up."""
        codecs = [unit.codec for unit in self.units]
        if step >= self._warmup:
            return codecs, self._packing
        codecs = [codec.warming(step / self._warmup) for codec in codecs]
        fields = [fields_of(codec, unit.form) for codec, unit in zip(codecs, self.units, strict=True)]
        return codecs, Packing(fields)

    def empty_message(self, step: int) -> Tensor:
        """Memory for a push of this step."""
        return torch.empty(self.at(step)[1].num_bytes, dtype=torch.uint8)

    def decode(self, message: Tensor, rank: int, step: int, out: Sequence[Tensor]) -> None:
        """Write the gradients that a worker's push encodes into flat ranges."""
        codecs, packing = self.at(step)
        for unit, codec, payload in zip(self.units, codecs, packing.unpack(message), strict=True):
            codec.aggregate([payload], unit.of(out), [seed_of(unit.name, step, rank)])


@final
class PushEncoder:
    """A worker's side: encodes gradients, and keeps the parts that codecs drop for the next push."""

    def __init__(
        self, formats: Sequence[PushFormat], rank: int, workers: int, span: SpanRecorder | None = None
    ) -> None:
        self._formats, self._rank, self._workers = formats, rank, workers
        self._span = span or silent()
        self._residuals: dict[str, Tensor] = {}
        self._memories: dict[str, Tensor] = {}

    @torch.no_grad()
    def encode(self, gradients: Sequence[Sequence[Tensor]], step: int) -> list[Tensor]:
        """A message to each server; `gradients` are flat ranges for each of them, and are overwritten.

        A gradient that is not finite leaves residuals as they are: the server's guard learns of it from the header.
        """
        messages: list[Tensor] = []
        with self._span("encode", "encode"):
            is_finite = all_finite([flat for ranges in gradients for flat in ranges])
            for push, ranges in zip(self._formats, gradients, strict=True):
                codecs, packing = push.at(step)
                payloads = [
                    self._encoded(unit, codec, unit.of(ranges), step, is_finite)
                    for unit, codec in zip(push.units, codecs, strict=True)
                ]
                messages.append(packing.pack(payloads))
        return messages

    def _encoded(self, unit: PushUnit, codec: Codec, x: Tensor, step: int, is_finite: bool) -> Payload:
        seed = seed_of(unit.name, step, self._rank)
        if not is_finite:
            return codec.encode(x.zero_(), seed, self._memory_of(unit, codec))
        memory = codec.correct(x, self._memory_of(unit, codec), self._workers)
        if unit.feedback and unit.name in self._residuals:
            x.add_(self._residuals[unit.name])
        payload = codec.encode(x, seed, memory)
        check_payload(codec, payload, unit.form, unit.name)
        remembered = codec.remember(x, payload, memory, seed)
        if remembered is not None:
            self._memories[unit.name] = remembered
        if unit.feedback:
            codec.subtract(x, payload, seed)
            self._residuals.setdefault(unit.name, torch.empty_like(x)).copy_(x)
        return payload

    def _memory_of(self, unit: PushUnit, codec: Codec) -> Tensor | None:
        if unit.name in self._memories:
            return self._memories[unit.name]
        return codec.new_memory(unit.form, seed_of(unit.name, step=0))

    def pieces(self) -> dict[str, Tensor]:
        """Residuals and memories, by stretch."""
        residuals = {f"residual.{name}": tensor for name, tensor in self._residuals.items()}
        return residuals | {f"memory.{name}": tensor for name, tensor in self._memories.items()}

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore residuals and memories of stretches that are still encoded; all other stretches start fresh."""
        forms = {unit.name: unit for push in self._formats for unit in push.units}
        self._residuals, self._memories = {}, {}
        for name, tensor in pieces_under("residual.", pieces).items():
            if name in forms and tuple(tensor.shape) == forms[name].form.shape:
                self._residuals[name] = tensor.clone()
        for name, tensor in pieces_under("memory.", pieces).items():
            fresh = forms[name].codec.new_memory(forms[name].form, 0) if name in forms else None
            if fresh is not None and fresh.shape == tensor.shape:
                self._memories[name] = tensor.clone()
