"""`pipeline`: the model cut into stages, one for each worker; activations go down, gradients come back up."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import final

import torch
from torch import Tensor, nn

from shoal import nested
from shoal.comm.group import Group, Work
from shoal.data.dataset import Batch
from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.models.common import evaluation_mode
from shoal.models.losses import CountedLoss
from shoal.models.metrics import Measure
from shoal.nested import Nested, chunk_sizes
from shoal.strategies.gradient_engine import Loss, sums_of
from shoal.strategies.layout.layout import Layout
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.pieces.state import model_pieces, names_of, parts_of, whole_place
from shoal.strategies.pipeline.cut import NamedLayer
from shoal.strategies.pipeline.interpreter import ActivationForm, Forms, Interpreter, learn_forms, share_form
from shoal.strategies.pipeline.schedule import Schedule
from shoal.strategies.pipeline.schedules import build as build_schedule
from shoal.strategies.pipeline.schedules import with_weights_once
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.pipeline.stage import Autocast, PipelineStage
from shoal.strategies.pipeline.validate import validate
from shoal.strategies.strategy import Share, Sums, width_of
from shoal.strategies.tensor.divide import TensorParts


@cache
def schedule_of(name: str, weights_once: bool, stages: int, microbatches: int) -> Schedule:
    """The schedule for so many micro-batches, checked."""
    made = build_schedule(name, stages, microbatches)
    made = with_weights_once(made) if weights_once else made
    validate(made)
    return made


@final
class Pipelined(Layout):
    """One stage of the model, and the interpreter that executes its row of the schedule.

    All workers of the group are given the same share: the first stage uses its inputs, the last one its labels.
    """

    def __init__(
        self,
        model: nn.Module,
        stages: Sequence[Sequence[NamedLayer]],
        group: Group,
        loss: Loss,
        autocast: Autocast,
        span: SpanRecorder,
        config: PipelineConfig,
        replica: int = 0,
        parts: TensorParts | None = None,
        measures: Sequence[Measure] = (),
        loss_scale: LossScale | None = None,
    ) -> None:
        """`stages` are the layers of every stage, cut from `model`; of these, only this worker's are kept.

        If the layers are divided in turn, `parts` describes what this worker holds of them.
        """
        mine = stages[group.rank]
        self.model = nn.Sequential(*(layer.module for layer in mine))
        self._group, self._config = group, config
        self._place = partial(whole_place if parts is None else parts.place, replica=replica)
        self._last_layer = mine[-1].name
        self._is_last = group.rank == group.size - 1
        self.span, self.sharded_over = span, (group,)
        self.reports_loss = self._is_last and (parts is None or parts.group.rank == 0)
        held = {id(tensor): key for key, tensor in reversed(self.model.state_dict(keep_vars=True).items())}
        whole = model.state_dict(keep_vars=True)
        self._keys = {name: held[id(tensor)] for name, tensor in whole.items() if id(tensor) in held}
        """The name in `self.model` of each parameter and buffer, under its name in the whole model."""
        self.all_names = frozenset(whole) if parts is None else parts.names
        if parts is not None:
            self.sharded_over = (group, parts.group)
            self.repeated = parts.repeated & self._keys.keys()
        own = {id(param) for param in self.model.parameters()}
        self.params = {
            name: param
            for name, param in model.named_parameters()
            if param.requires_grad and id(param) in own
        }
        self.trained_names = names_of(whole, self.params)
        first = next(iter(self.params.values())).detach()
        self.zero = first.new_zeros((), dtype=first.dtype.to_real())
        self._loss_scale = loss_scale
        self._callbacks: dict[Tensor, list[Callable[[Tensor], None]]] = {}
        self._loss, self._autocast, self.measures = loss, autocast, measures
        self.counter = loss if isinstance(loss, CountedLoss) else None
        self._stage = PipelineStage(
            self.model,
            loss if self._is_last else None,
            autocast,
            group.rank == 0,
            config.recompute,
            stash_weights=config.updates_inside,
        )
        self.updates_inside = config.updates_inside
        self._interpreter = Interpreter(group, self._stage, span)
        self._forms: dict[tuple[bool, bool, tuple[ActivationForm, ...]], Forms] = {}

    def on_final(self, param: Tensor, callback: Callable[[Tensor], None]) -> Callable[[], None]:
        """Call back at the end of `gradients`: before that, no gradient has those of all micro-batches."""
        callbacks = self._callbacks.setdefault(param, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback)

    def gradients(self, share: Share, before_last: Callable[[], None] | None = None) -> Tensor:
        """Divide the share into micro-batches, and execute this stage's row of the schedule."""
        for param in self.params.values():
            param.grad = None
        parts = divided(share, self._config.microbatches)
        if not parts:
            return self.zero
        scale = 1.0 / share.num_samples_global
        if self._loss_scale is None:
            loss = self.accumulate(parts, scale)
        else:
            loss = self.accumulate(parts, scale * self._loss_scale.factor)
            # Not as backward produces them: weight gradients are added up apart from torch's autograd.
            self._loss_scale.divide_now(param.grad for param in self.params.values())
        if before_last is not None:
            before_last()
        for param in reversed(self.params.values()):
            for callback in self._callbacks.get(param, ()) if param.grad is not None else ():
                callback(param)
        return loss * scale if loss is not None and self.reports_loss else self.zero

    def accumulate(self, parts: Sequence[Batch], scale: float) -> Tensor | None:
        """Add scale · ∂(sum of losses)/∂θ of these micro-batches to the gradients; that sum, on the last stage."""
        if self.updates_inside:
            raise ConfigError(
                f"schedule {self._config.schedule} updates the weights inside a step: "
                "it has no gradients of a whole batch",
                "Use 1f1b, which has the same bubble.",
            )
        return self._run(parts, [scale] * len(parts))

    def update_each(self, share: Share, update: Callable[[], object]) -> Tensor:
        """Divide the share into micro-batches, each a batch of its own; all have left the pipeline at the end.

        Forwards on stage s of p miss the updates of the p − s − 1 micro-batches before them in the share.
        """
        for param in self.params.values():
            param.grad = None
        parts = divided(share, self._config.microbatches)
        if not parts:
            return self.zero
        loss = self._run(parts, [1.0 / part.num_samples for part in parts], update)
        return loss / share.num_samples_global if loss is not None and self.reports_loss else self.zero

    def _run(
        self, parts: Sequence[Batch], scales: Sequence[float], update: Callable[[], object] | None = None
    ) -> Tensor | None:
        forms = self._forms_of(parts[0].inputs, training=True)
        config, group = self._config, self._group
        is_once = config.weight_gradients == "once"
        row = schedule_of(config.schedule, is_once, group.size, len(parts)).rows[group.rank]
        return self._interpreter.run(row, parts, forms, scales, update)

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch: the last stage has the outputs, and sends the sums."""
        numbers = torch.zeros(width_of(self.measures), dtype=torch.float64, device=self.zero.device)
        outputs = self._inferred(batch.inputs)
        if outputs is not None:
            numbers.copy_(sums_of(outputs, self._loss, batch, self.measures).packed())
        self._group.broadcast(numbers, root=self._group.size - 1).wait()
        loss = numbers[0].to(self.zero.dtype)
        return Sums(loss, numbers[1], batch.num_classified, batch.num_samples, numbers[3:], numbers[2])

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        """The model's outputs in evaluation mode, on every worker."""
        outputs, group = self._inferred(inputs), self._group
        form = share_form(group, None if outputs is None else ActivationForm.of(outputs))
        outputs = form.empty(len(inputs), inputs.device) if outputs is None else outputs.contiguous()
        group.broadcast(outputs, root=group.size - 1).wait()
        return outputs

    def _inferred(self, inputs: Nested) -> Tensor | None:
        """The model's outputs on the last stage: parts of the batch follow each other through the stages."""
        num_samples, device = nested.length(inputs), nested.first(inputs).device
        if not num_samples:
            raise ConfigError("a batch without samples has no outputs")
        forms, group = self._forms_of(inputs, training=False), self._group
        found: list[Tensor] = []
        sent: list[tuple[Tensor, Work]] = []
        end = 0
        for size in chunk_sizes(num_samples, min(self._config.microbatches, num_samples)):
            end += size
            if forms.received is None:
                part = nested.part(inputs, end - size, end)
            else:
                part = forms.received.empty(size, device)
                group.recv(part, group.rank - 1).wait()
            outputs = self._inference(part, training=False)
            if self._is_last:
                found.append(outputs)
            else:
                sent.append((outputs, group.send(outputs, group.rank + 1)))
        for _, work in sent:
            work.wait()
        return torch.cat(found) if self._is_last else None

    def _forms_of(self, inputs: Nested, training: bool) -> Forms:
        """The forms of activations; the first batch of a kind passes through the stages once more to learn them."""
        forms = tuple(ActivationForm.of(leaf) for _, leaf in nested.leaves(inputs))
        key = training, torch.is_autocast_enabled(nested.first(inputs).device.type), forms
        if key not in self._forms:
            self._forms[key] = learn_forms(
                self._group, lambda few: self._inference(few, training), inputs, self._last_layer
            )
        return self._forms[key]

    @torch.no_grad()
    def _inference(self, inputs: Nested, training: bool) -> Tensor:
        """This stage's output in evaluation mode, in the precision of training or of evaluation."""
        precision = self._autocast(nested.first(inputs).device.type) if training else nullcontext()
        with evaluation_mode(self.model), precision:
            return self.model(inputs)

    def place_of(self, name: str) -> Place:
        """The whole parameter, or this worker's part of it."""
        return self._place(name, self.params[name])

    def pieces(self) -> list[Piece]:
        """The parameters and buffers of this stage."""
        return model_pieces(self._state(), self._place)

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Copy the saved weights of this stage into it."""
        loaded = parts_of(self._state(), saved, "model.", self._place, self.all_names)
        # Strict would refuse a layer that is used twice: it has two names here, and its weights come once.
        self.model.load_state_dict({self._keys[name]: each for name, each in loaded.items()}, strict=False)

    def _state(self) -> dict[str, Tensor]:
        """The parameters and buffers of this stage, under their names in the whole model."""
        state = self.model.state_dict()
        return {name: state[key] for name, key in self._keys.items()}


def divided(share: Share, microbatches: int) -> list[Batch]:
    """The samples of a share in micro-batches of equal size, up to one sample; fewer if there are too few samples."""
    batches = [part for part in share.parts if part.num_samples]
    if not batches:
        return []
    batch = Batch.joined(batches)
    return batch.parts(chunk_sizes(batch.num_samples, min(microbatches, batch.num_samples)))
