"""Settings of the pipeline."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import DIVIDED_MODEL, Row, refused
from shoal.config.sections.values import AmongOrOwn, Count
from shoal.errors import ConfigError


@dataclass(frozen=True)
class PipelineConfig(Checked):
    """Stages of layers on different workers; micro-batches pass through."""

    REFUSES: ClassVar[Row] = {
        **DIVIDED_MODEL,
        "--strategy.sync_batchnorm": "replicas would have to make the same number of passes",
        **refused(
            "--strategy.stage 2",
            "--strategy.stage 3",
            why="a stage needs its gradients and weights until its last micro-batch has gone backward",
        ),
    }

    schedule: Annotated[str, AmongOrOwn(("sequential", "gpipe", "1f1b", "zero-bubble", "async"))] = "1f1b"
    """The order of forwards and backwards; `shoal explain 1f1b` draws one. async updates after every micro-batch, which
    is a batch of its own: with more than one, results differ from one machine's. Or package.module:function."""
    microbatches: Count = 4
    """Parts of each worker's share of a batch that follow each other through the stages."""
    cut: tuple[str, ...] = ()
    """The layers at which a new stage begins, such as conv2,fc1; empty: where measured times are most even."""
    weight_gradients: Literal["each", "once"] = "each"
    """Compute the gradients of weights for each micro-batch, or once per step: faster, and needs more memory."""
    recompute: bool = False
    """Compute activations again for the backward pass instead of keeping them: less memory, a third more work."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.updates_inside and self.weight_gradients == "once":
            raise ConfigError(
                f"--pipeline.schedule {self.schedule} updates after every micro-batch and cannot compute the weight "
                "gradients once per step",
                "Remove --pipeline.weight_gradients, or use --pipeline.schedule 1f1b.",
            )

    @property
    def updates_inside(self) -> bool:
        """Whether the weights change during a step, after every micro-batch."""
        return self.schedule == "async"

    def check_fits(self, stages: int, share: int, micro_batch: int) -> None:
        """Refuse a cut into another number of stages, and micro-batches of more than `micro_batch` samples."""
        if self.cut and len(self.cut) != stages - 1:
            names = ",".join(self.cut)
            raise ConfigError(
                f"--pipeline.cut {names} makes {len(self.cut) + 1} stages, but the mesh has pipeline={stages}",
                f"Name {stages - 1} layer{'s' * (stages != 2)}, or leave --pipeline.cut out.",
            )
        samples = math.ceil(share / self.microbatches)
        if samples > micro_batch:
            raise ConfigError(
                f"{share} samples in {self.microbatches} micro-batches are {samples} each, but --micro-batch is "
                f"{micro_batch}",
                f"Use --pipeline.microbatches {math.ceil(share / micro_batch)}, or --micro-batch {samples}.",
            )
