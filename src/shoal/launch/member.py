"""A worker process of the `processes` launcher: `python -m shoal.launch.member`, started by it and by nobody else.

Its settings come on standard input, its place in the world in the environment, and what it has to tell goes into the
pipe whose number it is given.
"""

import ctypes
import os
import signal
import sys
import time
import tomllib
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Be killed when the launcher's main thread ends, whatever ended it: no orphans. Linux only; elsewhere a no-op."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was already gone when we asked
            os._exit(1)


def main() -> int:
    """Join, work, tell."""
    _, parent, descriptor, resumed = sys.argv
    die_with_parent(int(parent))

    from shoal.comm.join import join
    from shoal.config.read import from_tree
    from shoal.events.folder import RunFolder
    from shoal.launch.facts import facts_of
    from shoal.launch.messages import PipeObserver
    from shoal.train import worker

    observer = PipeObserver(int(descriptor), time.monotonic)
    try:
        config = from_tree(tomllib.loads(sys.stdin.read()))
        group = join(kind=config.launch.group, facts=facts_of(config))
        if resumed:
            result = worker.resume(RunFolder(Path(resumed)), config, observer, group)
        else:
            result = worker.run(config, observer, group)
        observer.finished(result)
        group.close()
    except BaseException as error:  # whatever it is, the launcher must hear of it
        observer.failed(error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
