import torch
from safetensors.torch import load_file

from shoal import data, models
from shoal.config.schema import RunConfig
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.config.sections.train import OutputConfig, TrainConfig
from shoal.config.write import to_plain
from shoal.strategies.pieces.state import load_weights
from shoal.training import worker
from shoal_labs.lab1.noise import whole_loss_after


def test_the_replayed_weights_are_those_of_the_run(tmp_path):
    """Replayed to its end, a run has the loss of the model that it saved."""
    config = RunConfig(
        seed=3,
        threads=1,
        device="cpu",
        data=SyntheticConfig(samples=200),
        model=MlpConfig(hidden=(8,)),
        optimizer=SgdConfig(lr=0.1, fast=False),
        train=TrainConfig(steps=5, batch_size=64, test=False),
        output=OutputConfig(dir=str(tmp_path), name="run"),
    )
    folder = worker.run(config).run
    dataset = data.load(config.data)
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    load_weights(model, load_file(tmp_path / "run" / "model.safetensors"))
    batch = dataset.batch(dataset.train, torch.arange(len(dataset.train)))
    loss = torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels).item()
    assert abs(whole_loss_after(to_plain(config), 5) - loss) < 1e-5, folder
    assert whole_loss_after(to_plain(config), 0) > loss
