"""What a sync can be combined with."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Capabilities:
    """What a sync can be combined with. `RunConfig` checks a run against it, so no sync is checked by its type."""

    most_workers: int | None = None
    """The largest number of workers; none: any."""
    divides_batch: bool = True
    """Whether each worker takes its share of a batch: partitions, uneven shares and balancing need that."""
    exchanges: bool = True
    """Whether it takes an `--exchange`."""
    refused_codecs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Codecs that cannot encode what it sends, or their setting `vote`, and why."""
    engines: tuple[str, ...] = ("torch", "tape", "static")
    """The engines that can compute its gradients."""
    fewest_workers: int = 1
    """The smallest number of workers."""
    launchers: tuple[str, ...] = ("processes", "threads")
    """What its workers can be."""
    precisions: tuple[str, ...] = ("float32", "tf32", "bf16")
    """The precisions that it can compute in."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """The devices that it can compute on."""
    clips: bool = True
    """Whether it can clip gradients by their norm."""
    accumulates: bool = True
    """Whether it can compute a batch in parts of `--micro-batch` samples."""
    conditions: bool = True
    """Whether simulated bottlenecks, faults and links reach its workers."""
    runs_received_code: bool = False
    """Whether its workers execute what is sent to them: then they listen on loopback unless the user consents."""
    whole_weights: bool = True
    """Whether each worker has all weights to itself: a simulated worker with stale weights needs that."""
    invariant: bool = False
    """Whether it can sum along one tree of micro-batches for any number of workers (`--reduction invariant`)."""
    prunes: bool = False
    """Whether pruned weights stay zero and are not sent (`--prune`)."""
