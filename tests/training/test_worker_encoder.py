"""Evaluation computes a `TransformerEncoder` as training does: torch's fused one writes zeros at padded positions."""

import pytest
import torch
from small_runs import train

from shoal.cli.main import main

NET = """
import torch
from torch import nn

class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.encoder(self.emb(tokens), src_key_padding_mask=tokens == 0).mean(1))

def net():
    return Padded().double()

def data():
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 20, (60, 6), generator=draw)
    tokens[::2, 3:] = 0
    return tokens, (tokens == 7).any(1).long()
"""


def test_a_padded_encoder_has_one_test_loss_whole_and_divided(tmp_path, monkeypatch, capsys):
    (tmp_path / "padded.py").write_text(NET)
    (tmp_path / "plan.toml").write_text('encoder = "heads"\nemb = "row"\n')
    monkeypatch.chdir(tmp_path)
    flags = "--model padded:net --data padded:data --epochs 1 --device cpu --threads 1"
    single = train(capsys, flags)
    divided = train(capsys, flags, "--strategy tensor --workers 2 --launcher threads --tensor.plan plan.toml")
    assert single["test_loss"] == pytest.approx(divided["test_loss"], rel=1e-12)
    assert main(["evaluate", single["run"], "--json", "--trust-code"]) == 0
    assert f'"loss": {single["test_loss"]}' in capsys.readouterr().out
    assert torch.backends.mha.get_fastpath_enabled()
