"""Lightning with shoal's wrapper: a strategy that overrides one method.

    pip install lightning && python examples/third_party/lightning_ddp.py    # starts two processes

With `--wrapper torch` the same program uses torch's wrapper and ends with the same weights, to the bit.
"""

import argparse
import hashlib

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.config.sections.data import DigitsConfig
from shoal.data import load


class ShoalStrategy(DDPStrategy):
    """Lightning's data parallelism; shoal exchanges the gradients."""

    def _setup_model(self, model: nn.Module) -> shoal.DistributedDataParallel:
        return shoal.DistributedDataParallel(model, **self._ddp_kwargs)


class Classifier(L.LightningModule):
    """A small network on digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The mean loss of this worker's samples; logged: the mean over all workers and steps."""
        loss = F.cross_entropy(self.net(batch[0].flatten(1).float() / 255), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrapper", choices=["shoal", "torch"], default="shoal")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    strategy = ShoalStrategy if parser.parse_args().wrapper == "shoal" else DDPStrategy
    L.seed_everything(0)
    model, data = Classifier(), load(DigitsConfig()).train
    train = DataLoader(TensorDataset(data.inputs, data.labels), 32, shuffle=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy=strategy(), max_epochs=1, **quiet)
    trainer.fit(model, train)
    trainer.print("loss", trainer.callback_metrics["loss"].item())
    trainer.print("weights sha256", hashlib.sha256(save(model.state_dict())).hexdigest())
