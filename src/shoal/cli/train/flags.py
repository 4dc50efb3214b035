"""The flags of `shoal train` that are not settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from shoal.config.flags import Flags
from shoal.config.kinds import Matching
from shoal.config.sections.values import Count, Number, Port, Seconds


@dataclass(frozen=True)
class TrainFlags(Flags):
    """How the run is shown, and which worker this process is if the user starts each by hand."""

    ALIASES: ClassVar = {"world_size": ("--n_devices",)}

    resume: Path | None = None
    """Continue a run that was stopped: its folder under runs/."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the recipe or the resumed run names."""
    json: bool = False
    """Print the result as one line of JSON; everything else goes to standard error."""
    quiet: bool = False
    """Show no progress, only the summary at the end."""
    print_config: bool = False
    """Print all settings of the run as a recipe, and train nothing."""
    dry_run: bool = False
    """Check everything, read the data and build the model, and train nothing."""
    rank: Number | None = None
    """Rank of this worker, if you start each worker by hand."""
    world_size: Count | None = None
    """Number of workers that you start."""
    master: Annotated[str, Matching(r".+:[0-9]{1,5}", "host:port", "HOST:PORT")] | None = None
    """Address at which rank 0 listens and the others join."""
    master_addr: str | None = None
    """Host of --master, as the course's scripts write it (default 127.0.0.1)."""
    master_port: Port | None = None
    """Port of --master, as the course's scripts write it."""
    join_timeout: Seconds = 60.0
    """Seconds to wait for the other workers."""
    gpu: Number | None = None
    """The GPU that this worker uses."""
