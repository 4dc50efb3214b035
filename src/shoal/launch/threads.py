"""Workers as threads of this process: for debuggers, where a breakpoint works in every rank, and for tests."""

import threading

import torch

from shoal.comm.threads import ThreadGroup
from shoal.config.schema import RunConfig
from shoal.errors import MemberError
from shoal.events.folder import RunFolder
from shoal.train import worker
from shoal.train.build import torch_settings
from shoal.train.observer import Observer, Silent
from shoal.train.result import Result
from shoal.train.stop import StopRequest


def launch(config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
    """Train with one thread per worker; the result is rank 0's, and the first failure is raised.

    Torch's settings (threads, random state) are the process's and are set once, for all.
    """
    results: list[Result | None] = [None] * config.launch.workers
    failures: list[tuple[int, BaseException]] = []
    with torch_settings(config) as device, StopRequest() as stop:

        def member(group: ThreadGroup) -> None:
            watcher = observer if group.rank == 0 else Silent()
            try:
                # Whether gradients are recorded is a thread's own setting, and a debugger's thread may have changed it.
                with torch.enable_grad():
                    results[group.rank] = worker.work(config, device, stop, watcher, group, resumed)
            except BaseException as error:  # whatever it is, the others must not wait for this worker
                failures.append((group.rank, error))
            finally:
                group.close()

        members = [
            threading.Thread(target=member, args=(group,), name=f"rank{group.rank}", daemon=True)
            for group in ThreadGroup.world(config.launch.workers)
        ]
        for thread in members:
            thread.start()
        for thread in members:
            while thread.is_alive():
                thread.join(0.1)  # a join without limit would keep signals from being handled
    if failures:
        # What a worker suffered because another had failed is no news.
        rank, error = next((f for f in failures if not isinstance(f[1], MemberError)), failures[0])
        error.add_note(f"in rank {rank} of {config.launch.workers}")
        raise error
    result = results[0]
    assert result is not None
    return result
