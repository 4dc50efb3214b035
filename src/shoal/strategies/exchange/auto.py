"""`compressed:auto`: measures links and codecs in the first steps, and continues with the fastest exchange."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import BUSY_S, Group, Work
from shoal.comm.reduction import Op
from shoal.config.sections.compression import CompressedConfig
from shoal.errors import ConfigError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.choice import Candidate, Choice, Echo, measure_link, slowest, timed
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import AllReduce, Exchange, pieces_under
from shoal.strategies.exchange.payloads import all_finite
from shoal.strategies.strategy import TrainingClock

FIRST_STEPS = 2
"""Uncompressed steps before the choice: in the first one memory is allocated, and buckets are planned again."""
REPEATS = 3
LONG_S = 1.0
"""A codec that takes this long is measured once."""


@final
class Auto(Exchange):
    """Phase 1, the first steps: gradients are summed as they are; each worker keeps a copy of its own.

    Phase 2, before the next step: every candidate exchanges that copy over an `Echo`, which takes the time of encoding
    and decoding and lists the messages; then the workers time collectives of such sizes. The slowest worker's times
    count, so all workers hold the same numbers, and make the same choice (`choice.py`). Phase 3: the chosen exchange.

    Measurements vary, so two runs may choose differently; a run with the chosen one as its only candidate makes the
    same steps, to the bit. Checkpoints hold the choice. A worker that a resumed run adds takes over the others'.

    Steps in which a gradient is not finite are not measured: the choice is made a step later. Predicted times do not
    consider that an exchange may overlap with backward.
    """

    def __init__(self, config: CompressedConfig, training: TrainingClock) -> None:
        self._configs, self._training = config.alternatives(), training
        self._step = -1
        """The step of the last call."""
        self._sample: list[Bucket] = []
        """Copies of this worker's gradients of the last step, until the choice."""
        self._exchange: Exchange | None = None
        self.chosen: str | None = None
        """The name of the exchange in use, once it is chosen."""
        self.on_choice: Callable[[Choice], None] = lambda choice: None
        """Called when the workers have chosen."""

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the chosen exchange; in the first steps, a sum."""
        is_first = self._step < 0
        if self._training.step != self._step:
            self._step = self._training.step
            if self._exchange is None or is_first:
                self._agree(group)
                self._sample = []
        if self._exchange is not None:
            return self._exchange(group, bucket)
        self._sample.append(_copy(bucket))
        return group.all_reduce(bucket.flat)

    def _agree(self, group: Group) -> None:
        """Take over a choice from a checkpoint, which a new worker does not have; else choose, if all workers can."""
        names = list(self._configs)
        has_sample = bool(self._sample) and all_finite([bucket.gradients for bucket in self._sample])
        mine = [names.index(self.chosen) if self.chosen else -1, int(not has_sample)]
        agreed = torch.tensor(mine)
        group.all_reduce(agreed, Op.MAX).wait()
        number, lacks_sample = agreed.tolist()
        if number >= 0 and self.chosen is None:
            self._continue_with(names[number])
        elif number < 0 and self._step >= FIRST_STEPS and not lacks_sample:
            if len(names) == 1:
                self._continue_with(names[0])
                return
            group.beat(BUSY_S)
            choice = measure(group, self._configs, self._sample)
            self._continue_with(choice.chosen.name)
            self.on_choice(choice)

    def _continue_with(self, name: str) -> None:
        self.chosen, self._exchange = name, _built(self._configs[name], self._training)

    def pieces(self) -> dict[str, Tensor]:
        """The choice and the state of the chosen exchange; before, the gradients to measure with."""
        if self.chosen is None or self._exchange is None:
            return {
                f"sample.{name}": view
                for bucket in self._sample
                for name, view in zip(bucket.names, bucket.views, strict=True)
            }
        text = torch.frombuffer(bytearray(self.chosen.encode()), dtype=torch.uint8)
        return {
            "choice": text,
            **{f"chosen.{name}": piece for name, piece in self._exchange.pieces().items()},
        }

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore choice and state. A choice that is no candidate any more is made again."""
        self._step, self._sample, self._exchange, self.chosen = -1, [], None, None
        if "choice" in pieces:
            name = pieces["choice"].cpu().numpy().tobytes().decode()
            if name in self._configs:
                self._continue_with(name)
        if self._exchange is not None:
            self._exchange.load(pieces_under("chosen.", pieces))
        self._sample = [
            Bucket.of(name, piece.clone(memory_format=torch.contiguous_format))
            for name, piece in pieces_under("sample.", pieces).items()
        ]


def measure(group: Group, configs: Mapping[str, CompressedConfig], sample: list[Bucket]) -> Choice:
    """Measure candidates on this worker's gradients and the links between all workers; a collective."""
    device = sample[0].flat.device
    unfit: list[ConfigError] = []
    found: list[Candidate] = []
    for name, config in configs.items():
        try:
            found.append(_candidate(group, name, config, sample))
        except ConfigError as error:  # a codec that cannot encode this dtype
            unfit.append(error)
    if not found:
        raise unfit[0]
    found.append(_candidate(group, "none", CompressedConfig(codec="none"), sample))
    local_s = slowest(group, [each.local_s for each in found])
    *found, dense = (replace(each, local_s=seconds) for each, seconds in zip(found, local_s, strict=True))
    messages = [message for each in (*found, dense) for message in each.messages]
    return Choice(measure_link(group, messages, device), found, dense)


def _candidate(group: Group, name: str, config: CompressedConfig, sample: list[Bucket]) -> Candidate:
    """The messages of one exchange in a step, and its shortest time on this worker; its state is thrown away."""
    exchange = _built(config, TrainingClock(step=config.warmup))
    times: list[float] = []
    echo = Echo(group)
    for number in range(1 + REPEATS):
        echo.messages.clear()
        buckets = [_copy(bucket) for bucket in sample]

        def work(buckets: list[Bucket] = buckets) -> None:
            for bucket in buckets:
                exchange(echo, bucket).wait()

        times.append(timed(work, sample[0].flat.device))
        if number == 0 and times[0] < LONG_S:
            times.clear()  # the first one allocates
        elif times[0] >= LONG_S:
            break
    return Candidate(name, min(times), tuple(echo.messages))


def _built(config: CompressedConfig, training: TrainingClock) -> Exchange:
    """The exchange of a candidate; of no compression at all, the sum itself."""
    return AllReduce() if config.codec == "none" and not config.layers else Compressed(config, training)


def _copy(bucket: Bucket) -> Bucket:
    return bucket.with_memory(bucket.gradients.clone())
