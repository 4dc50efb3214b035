"""Finished runs made by hand: what each worker did in each step, and what it ended with."""

import json

import numpy as np
from safetensors.numpy import save_file

from shoal.config.read import read
from shoal.config.write import to_toml
from shoal.events.file import EventFile, read_events
from shoal.events.fingerprint import weights_sha256_of
from shoal.events.folder import RunFolder, run_id_line

DDP = "--strategy ddp --workers 2 --threads 1"
STEPS = 40
RUN_ID = "5eed"


def write_run(
    folder,
    flags,
    step_ms=10.0,
    ranks=((9.0, 0.5, 0.0),),
    noise=0.01,
    turns=False,
    weights=None,
    gradient=None,
    not_scheduled=0.01,
    loss=2.0,
    run_id=RUN_ID,
    encode_ms=0.0,
    mapped_bytes=0,
    counts_bytes=True,
    cores=None,
    validations=(),
    **result,
):
    """A finished run. Each rank computes, moves and waits for the given milliseconds in each step, or in turns.

    It also encodes, and sends 1000 bytes; older versions did not count what it sends in a step. `validations` are its
    accuracies on the validation set, the last one after its last step.
    """
    folder.mkdir(parents=True)
    config = read("quickstart", flags.split())
    (folder / "config.toml").write_text(run_id_line(run_id) + to_toml(config), encoding="utf-8")
    jitter = 1 + noise * np.sin(np.arange(STEPS))
    ends_s = np.cumsum(jitter * step_ms) / 1e3
    for rank in range(len(ranks)):
        records = [{"event": "start", "step": 0, "run_id": run_id, "cores": cores}] if cores else []
        for number in range(STEPS):
            compute, move, wait = ranks[(rank + number * turns) % len(ranks)]
            last = max(c for c, _, _ in ranks)
            start, end = compute, last + move
            start_ns, end_ns = (round(t * 1e6) for t in (start, end if wait or move else start))
            calls = [
                ["all_reduce", "move", "main", start_ns, start_ns, 1000, "world", number],
                ["all_reduce", "wait", "main", start_ns, end_ns, 0, "world", number],
            ]
            records.append(
                {
                    "event": "step",
                    "step": number,
                    "samples": 64,
                    "loss": loss / (number + 1),
                    "seconds": ends_s[number],
                }
                # Not all equal: equal times do not say how much they scatter.
                | {
                    "totals_ns": {
                        "compute": round(compute * 1e6) + number % 3,
                        "encode": round(encode_ms * 1e6),
                    }
                }
                | {"blocked_ns": end_ns - start_ns}
                | ({"sent_bytes": 1000, "mapped_bytes": mapped_bytes} if counts_bytes else {})
                | {"spans": calls if len(ranks) > 1 else []}
            )
        for epoch, accuracy in enumerate(validations, 1):
            found = {"step": STEPS * epoch // len(validations), "epoch": epoch, "accuracy": accuracy}
            records.append({"event": "validation", "loss": 1 - accuracy, **found})
        records.append({"event": "end", "status": "completed", "not_scheduled": not_scheduled})
        write_events(folder, rank, records)
    weights = {"w": np.array([1.0, -2.0])} if weights is None else weights
    save_file(weights, folder / "model.safetensors")
    if gradient is not None:
        state = {
            "w": np.array([1.0]),
            "optim.w.exp_avg": np.array(gradient),
            "optim.w.exp_avg_sq": np.zeros(1),
        }
        save_file(state, folder / "first_step.safetensors")
    closing = {"status": "completed", "steps": STEPS, "seconds": float(ends_s[-1]), "test_accuracy": 0.9635}
    closing |= {"test_loss": 0.1, "bytes_sent": 1_500_000, "device": "cpu", "run_id": run_id}
    if validations:
        closing |= {"validation_accuracy": validations[-1], "validation_loss": 1 - validations[-1]}
    closing |= {"weights_sha256": weights_sha256_of(folder / "model.safetensors")}
    RunFolder(folder).write_result(closing | result)
    return folder


def write_profile(path, noted=None, closing=None, **options):
    """The profile of a program on two workers.

    `noted(rank, step)` has more of a step's record, and `closing(rank)` of the last one.
    """
    folder = RunFolder(write_run(path, DDP, run_id="", **options))
    result = json.loads(folder.result.read_text())
    facts = {key: result[key] for key in ("status", "steps", "seconds", "device")}
    folder.config.unlink()
    folder.model.unlink(missing_ok=True)
    folder.write_result({**facts, "profile": "/home/me/train.py --lr 1", "workers": 2, "run_id": ""})
    for rank in range(2):
        *steps, end = read_events(folder.events(rank))
        steps = [step | (noted(rank, step["step"]) if noted else {}) for step in steps]
        write_events(folder.path, rank, [*steps, end | (closing(rank) if closing else {})])
    return folder.path


def with_invariant_steps(folder, sha256):
    """Give a run the result of its invariant steps; None: they failed."""
    inside = folder / "invariant"
    inside.mkdir()
    if sha256 is not None:
        closing = {"status": "completed", "weights_sha256": sha256}
        RunFolder(inside).write_result(closing)
    return folder


def write_events(folder, rank, records):
    """The events of one rank, in place of older ones."""
    path = RunFolder(folder).events(rank)
    path.unlink(missing_ok=True)
    with EventFile(path) as events:
        for record in records:
            events.append(record)
