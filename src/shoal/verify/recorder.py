"""Records the steps of one worker: what entered its model, what came out, its gradients and its state."""

import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shoal.comm.over_torch.torch_calls import first_tensor
from shoal.errors import ConfigError
from shoal.verify.optimizers import groups_of, settings_of, state_of
from shoal.verify.seen import Enough, Steps, bare, is_random, is_shared, seen
from shoal.verify.store import Facts, Writer

ENOUGH = "enough-"
"""Begins the name of an empty file of each worker that has made as many steps as were asked for."""


class Recorder(Steps):
    """Writes what a worker does."""

    def __init__(self, folder: Path, rank: int, most: int | None = None, comparable: bool = False) -> None:
        super().__init__(comparable)
        self._folder, self._rank, self._most = folder, rank, most
        self._writer = Writer(folder, rank)
        self._rows = 0
        self._closed = -1

    def begins(self, names: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Record the state before the step; this is also the state after the step before."""
        self._state(names, buffers)
        if self.step == self._most:
            (self._folder / f"{ENOUGH}{self._rank}").touch()
            raise Enough
        digest = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8).hexdigest()
        self._writer.note(self.step, "begin", {"random": digest})

    def _state(self, names: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        for kind, tensors in (("param", names), ("buffer", buffers)):
            for name, tensor in tensors.items():
                if not self.step and kind == "param" and is_away(tensor):
                    raise ConfigError(
                        f"{name} has no values when the model is called: the program gathers parameters while a "
                        "module runs, as ZeRO stage 3 does",
                        "Seen are torch's FSDP2 (`fully_shard`), and shoal.zero on one machine without gloo; "
                        "`shoal verify --strategy zero` compares Shoal's.",
                    )
                self._writer.put(self.step, f"{kind}/{name}", tensor)

    def found(self, names: Mapping[str, Tensor]) -> None:
        """Record the gradients of these parameters before anything is exchanged."""
        for name, param in names.items():
            if param.requires_grad and param.is_leaf:

                def record(gradient: Tensor, name: str = name) -> None:
                    self._writer.put(self.step, f"local/{self.backwards}/{name}", gradient)

                param.register_hook(record)

    def forward(self, model: nn.Module, inputs: Tensor | None, output: Any, is_random: bool) -> None:
        """Record the output of a forward pass, and which samples it had."""
        found = first_tensor(output)
        if found is not None:
            self._writer.put(self.step, f"output/{self.forwards}", found)
        rows = rows_of(inputs)
        self._rows += len(rows)
        facts: Facts = {"rows": rows, "random": is_random, "dtype": compute_type(found)}
        facts["special"] = special(model)
        self._writer.note(self.step, "forward", facts)

    def backward(self, loss: Any) -> None:
        """Record the loss."""
        found = first_tensor(loss)
        value = float(found.detach()) if found is not None and found.numel() == 1 else None
        self._writer.note(self.step, "backward", {"loss": value, "rows": self._rows})
        self._rows = 0

    def exchanged(self, grads: Mapping[str, Tensor]) -> None:
        """Record what a wrapper's exchange has made of the gradients; the program may change them after it."""
        for name, gradient in grads.items():
            self._writer.put(self.step, f"exchanged/{name}", gradient)

    def updates(self, optimizer: Any) -> None:
        """Record the gradients as the optimizer gets them, and its settings."""
        held = {id(param) for group in groups_of(optimizer) for param in group["params"]}
        for name, gradient in self.grads(held).items():
            self._writer.put(self.step, f"grad/{name}", gradient)
        self._writer.note(self.step, "update", settings_of(optimizer, held, self.tensors))

    def updated(self, optimizer: Any) -> None:
        """Record the optimizer's state after its update."""
        for key, tensor in state_of(optimizer, self.tensors).items():
            self._writer.put(self.step, f"state/{key}", tensor)
        self._writer.flush()

    def batch(self, loader: int, number: int, iterator: Any, load: Callable[[], Any]) -> Any:
        """Record a batch and the indices of its samples."""
        facts: Facts = {"loader": loader, "pass": number, "batch": self.drawn[loader]}
        if not facts["batch"]:
            facts |= self._about(iterator)
        indices = drawn_indices(iterator)
        try:
            found = load()
        except StopIteration:
            self._writer.note(self.step, "batch", {**facts, "end": True})
            raise
        self._writer.note(
            self.step, "batch", {**facts, "indices": [*indices[facts["batch"] : facts["batch"] + 1], []][0]}
        )
        torch.save(found, batch_file(self._folder, self._rank, loader, number, facts["batch"]))
        return found

    def length(self, loader: int, count: Callable[[], int]) -> int:
        """Record the number of batches that the program asks for: schedules are made of it."""
        found = count()
        self._writer.note(self.step, "length", {"loader": loader, "length": found})
        return found

    def _about(self, iterator: Any) -> Facts:
        """What is known of a loader: its data set's size and its number of batches."""
        about: Facts = {}
        for key, subject in (("samples", iterator._dataset), ("length", iterator._index_sampler)):
            try:
                about[key] = len(subject)
            except (TypeError, NotImplementedError):
                continue
        sampler = iterator._index_sampler
        about["whole_batches"] = bool(getattr(sampler, "drop_last", False))
        return about

    def closes(self) -> None:
        """Record the state after the last step."""
        if not self._began and self.step != self._closed:
            self._state(self.tensors, self.buffers)
            self._closed = self.step

    def finish(self) -> None:
        """End the record."""
        self.closes()
        self._writer.close()


def is_away(tensor: Tensor) -> bool:
    """Whether the memory of a parameter is freed, or has NaN alone: the workers have parts of its values.

    >>> tensor = torch.ones(2)
    >>> memory = tensor.untyped_storage().resize_(0)
    >>> is_away(tensor), is_away(torch.ones(2)), is_away(torch.full((2,), torch.nan))
    (True, False, True)
    """
    if hasattr(tensor, "full_tensor") or not tensor.numel():
        return False
    return not tensor.untyped_storage().nbytes() or bool(tensor.isnan().all())


def drawn_indices(iterator: Any) -> list[list[int]]:
    """The indices that an iterator draws from its sampler, batch by batch, remembered from the first call on."""
    drawn: list[list[int]] = iterator.__dict__.setdefault("shoal_indices", [])
    if "_next_index" not in iterator.__dict__:
        draw = iterator._next_index

        def remembered() -> Any:
            found = draw()
            drawn.append([int(each) for each in found] if isinstance(found, list | tuple) else [])
            return found

        iterator._next_index = remembered
    return drawn


def batch_file(folder: Path, rank: int, loader: int, number: int, batch: int) -> Path:
    """Where a batch of a worker is kept."""
    return folder / f"batch-{rank}-{loader}-{number}-{batch}.pt"


def rows_of(inputs: Tensor | None) -> list[str]:
    """A digest for each sample of a batch; none for what another model has computed."""
    if inputs is None or not inputs.ndim or inputs.requires_grad:
        return []
    flat = inputs.detach().cpu().contiguous()
    return [
        hashlib.blake2b(row.reshape(-1).view(torch.uint8).numpy().tobytes(), digest_size=8).hexdigest()
        for row in flat
    ]


def compute_type(output: Tensor | None) -> str:
    """The least precise type that a forward pass computed with, as far as it is known."""
    found = [torch.get_default_dtype() if output is None else output.dtype]
    kind = "cuda" if output is not None and output.is_cuda else "cpu"
    if torch.is_autocast_enabled(kind):
        found.append(torch.get_autocast_dtype(kind))
    floating = [dtype for dtype in found if dtype.is_floating_point] or [torch.float32]
    return str(max(floating, key=lambda dtype: torch.finfo(dtype).eps)).removeprefix("torch.")


def special(model: nn.Module) -> list[str]:
    """Modules whose outputs cannot equal one machine's."""
    named = [(name, module) for name, module in model.named_modules() if module.training]
    return [
        f"{type(each).__name__} {bare(name)}" for name, each in named if is_random(each) or is_shared(each)
    ]


@contextmanager
def recorded(
    folder: Path, rank: int, most: int | None = None, comparable: bool = False
) -> Generator[Recorder]:
    """Record the program in the body."""
    recorder = Recorder(folder, rank, most, comparable)
    failed = True
    try:
        with seen(recorder):
            yield recorder
        failed = False
    except Enough:
        failed = False
    except SystemExit as error:
        failed = bool(error.code)
        raise
    finally:
        if not failed:
            recorder.finish()
