"""The files of a run while it trains: events, validations, checkpoints."""

import os
import platform
import time
import warnings
from collections.abc import Sequence
from typing import final

import torch

from shoal import __version__
from shoal.comm.group import BUSY_S
from shoal.comm.links.measure import Measured
from shoal.events.clocks import ClockOffset
from shoal.events.file import first_event
from shoal.strategies.exchange.choice import Choice, CodecNotice
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.training import checkpoint
from shoal.training.disks.event_copies import EventCopies
from shoal.training.evaluation import Metrics
from shoal.training.hooks.hook import Hook
from shoal.training.progress import Progress
from shoal.training.run import Run
from shoal.training.setup.links import link_event
from shoal.training.weights import export_model


@final
class Records(Hook):
    """Writes what the loop produces, and tells the observer."""

    def __init__(self, run: Run, copies: EventCopies) -> None:
        self._run = run
        self._copies = copies

    def restored(self, saved: checkpoint.Checkpoint | None) -> None:
        """Report newer checkpoints that could not be used."""
        run = self._run
        if saved is not None and saved.fallback:
            run.unusable_checkpoints = saved.passed_over
            run.events.append(
                {"event": "fallback", "unusable": saved.passed_over, "used": saved.progress.step}
            )
            if run.group.rank == 0:
                warnings.warn(saved.fallback, stacklevel=2)

    def started(self, progress: Progress, links: Sequence[Measured], clock: ClockOffset) -> None:
        """Record the beginning: which run, which worker, on which machine."""
        run = self._run
        record = {
            "event": "start",
            "step": progress.step,
            "run_id": run.run_id,
            "rank": run.group.rank,
            "time_ns": time.time_ns(),
            "total_steps": run.total_steps,
        }
        data = list(run.identities) if run.group.rank == 0 else []
        self._compare_data(data)
        run.events.append(
            record
            | {"data": data}
            | {"strategy": run.config.strategy, "workers": run.workers}
            | {"version": __version__, "torch": torch.__version__, "device": str(run.device)}
            | {"threads": torch.get_num_threads(), "cores": os.cpu_count()}
            | {"host": platform.node(), "pid": os.getpid(), "clock": clock._asdict()}
        )
        for link in links if run.group.rank == 0 else ():
            run.events.append(link_event(link))
        run.observer.started(run.config, run.folder, progress, run.total_steps, str(run.device))

    def _compare_data(self, mine: list[str]) -> None:
        """Warn if a resumed run has other samples than before: steps then have other ones, and some come twice."""
        run = self._run
        before = first_event(run.folder.events()).get("data", mine) if mine else []
        if changed := [line.split()[0] for line in {*mine} ^ {*before}]:
            warnings.warn(
                f"data {run.data.name}: the samples of {' and '.join(sorted({*changed}))} are not those with which the "
                "run began, or are in another order: it is no longer the run that was stopped",
                stacklevel=2,
            )

    def chose(self, choice: Choice) -> None:
        """Record why the workers chose their codec; each stage of a pipeline chooses for itself."""
        run = self._run
        if run.strategy.data_rank == 0:
            step = run.training_clock.step
            run.events.append(choice.record() | {"step": step, "time_ns": time.time_ns()})
        if run.group.rank == 0:
            text = f"compressed:auto chose {choice.chosen.name}: {choice.reason}"
            warnings.warn(text, CodecNotice, stacklevel=2)

    def after_epoch(self, progress: Progress, metrics: Metrics | None) -> None:
        """Record the validation."""
        run = self._run
        if metrics:
            run.validation = metrics
            run.events.append(
                {"event": "validation", "step": progress.step, "epoch": progress.epoch, **metrics.record()}
            )
        run.observer.validated(progress, metrics)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; all workers do, together."""
        run, settings, began = self._run, self._run.config.checkpoint, time.perf_counter()
        run.group.beat(BUSY_S)  # writing may be slow
        run.events.flush(to_disk=True)
        pieces = run.strategy.pieces() + run.random.pieces()
        if run.loss_scale is not None:
            pieces += run.loss_scale.pieces(replica=run.group.rank)
        folder = run.folder.checkpoints
        checkpoint.save(folder, pieces, progress, settings.keep, run.group, run.run_id, run.disks)
        if settings.first_step and progress.step == 1:
            state = WholeTensors(run.strategy.pieces(), run.group, prefix=("model.", "optim."))
            export_model(run.folder.first_step, state, run.group.rank == 0, {})
        saved = {"event": "checkpoint", "step": progress.step, "time_ns": time.time_ns()}
        run.events.append(saved | {"seconds": round(time.perf_counter() - began, 6)})
        self._copies.send(run.events)
        run.observer.saved(progress)
