"""Reads the keys of a ds_config, and keeps account of those that were not read."""

from dataclasses import dataclass, field
from typing import Any, Literal, cast

from shoal.config.deepspeed.remarks import NOT_NEEDED, NOT_SUPPORTED
from shoal.config.kinds import check
from shoal.errors import ConfigError
from shoal.nearest import did_you_mean
from shoal.printable import printable, shortened

Topic = Literal["nearest", "open", "missing", "needless"]
"""What a remark says: translated to what differs a little; the user sets it; not translated; no setting needed."""


@dataclass(frozen=True)
class Remarks:
    """What the translation does not say by itself: a sentence for each key, by topic."""

    of_topic: dict[Topic, dict[str, str]] = field(
        default_factory=lambda: {"nearest": {}, "open": {}, "missing": {}, "needless": {}}
    )

    def add(self, topic: Topic, key: str, sentence: str) -> None:
        """One more sentence about a key."""
        before = self.of_topic[topic].get(key)
        self.of_topic[topic][key] = sentence if before is None else f"{before}; {sentence}"


class Keys:
    """A table of the file. `take` reads a key; `remark_on_rest` accounts for the others."""

    def __init__(self, values: object, path: str, remarks: Remarks) -> None:
        if not isinstance(values, dict):
            where = path or "the file"
            raise ConfigError(f"{where}: expected a table {{…}}, got {shortened(printable(repr(values)))}")
        self._values = dict(cast(dict[str, Any], values))
        self._path = path
        self.remarks = remarks

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def path(self, key: str) -> str:
        """The key with the tables that contain it."""
        shown = printable(shortened(key)).replace("\n", "\\n")
        return f"{self._path}.{shown}" if self._path else shown

    def take(self, key: str, kind: Any, setting: str = "", default: Any = None) -> Any:
        """The value of a key, if it is of this kind, else an error; without such a key, the default.

        None stands for `"auto"`: the program that calls DeepSpeed fills in the value, here the user sets `setting`.
        """
        value = self._values.pop(key, None)
        if value == "auto":
            what = f"set {setting}, or keep its default" if setting else "nothing to set here"
            self.remarks.add("open" if setting else "needless", self.path(key), f'"auto"; {what}')
            return None
        return default if value is None else check(kind, value, self.path(key))

    def holds(self, key: str, kind: type) -> bool:
        """Whether there is such a key with a value of this type."""
        return isinstance(self._values.get(key), kind)

    def without_keys(self) -> "Keys":
        """The same table, empty: what it configures is switched off."""
        return Keys({}, self._path, self.remarks)

    def table(self, key: str) -> "Keys":
        """The table under a key; an empty one if there is none."""
        value = self._values.pop(key, None)
        return Keys({} if value is None else value, self.path(key), self.remarks)

    def remark_on_rest(self) -> None:
        """Say of every key that was not taken why it is not in the recipe."""
        for key, value in self._values.items():
            if isinstance(value, dict) and self._path.count(".") < DEEPEST:
                inside = cast(dict[str, Any], value)
                if inside.get("enabled") is False or inside.get("device") == "none":
                    continue  # switched off
                table = Keys(
                    {name: inside[name] for name in inside if name != "enabled"}, self.path(key), self.remarks
                )
                if table._values:
                    table.remark_on_rest()
                    continue
            self._remark(self.path(key), value)

    def _remark(self, path: str, value: object) -> None:
        topic, reason = reason_of(path)
        if topic == "needless":
            # What we always do cannot be switched off.
            self.remarks.add("missing" if value is False else "needless", path, reason)
        elif value is not None and value is not False and value != OFF.get(path):
            self.remarks.add("missing", path, reason)


def reason_of(path: str) -> tuple[Topic, str]:
    """Why a key is not translated: the reason of the key itself, or of the table that contains it."""
    for length in range(path.count(".") + 1, 0, -1):
        prefix = ".".join(path.split(".")[:length])
        if prefix in NOT_NEEDED:
            return "needless", NOT_NEEDED[prefix]
        if prefix in NOT_SUPPORTED:
            return "missing", NOT_SUPPORTED[prefix]
    return "missing", f"not a key that we know{did_you_mean(path, [*NOT_NEEDED, *NOT_SUPPORTED, *TAKEN])}"


DEEPEST = 2
"""Tables inside tables whose keys are named one by one."""

OFF: dict[str, object] = {
    "gradient_predivide_factor": 1.0,
    "zero_optimization.zero_hpz_partition_size": 1,
    "zero_optimization.mics_shard_size": -1,
    "sequence_parallel_size": 1,
}
"""Values that switch something off that we do not support."""

TAKEN = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_optimization",
    "bf16",
    "fp16",
    "optimizer",
    "scheduler",
    "wall_clock_breakdown",
)
"""Keys that are translated, for the nearest guess."""
