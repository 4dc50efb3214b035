"""The Trainer of Hugging Face's transformers with shoal's wrapper: one assignment before the Trainer is made.

    pip install transformers accelerate
    torchrun --standalone --nproc-per-node 2 examples/third_party/trainer_ddp.py

With `--wrapper torch` the same program uses torch\'s wrapper and ends with the same weights, to the bit.
"""

import argparse
import hashlib
import sys
import tempfile

import torch
from safetensors.torch import save
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import shoal


class Counting(Dataset[dict[str, Tensor]]):
    """Sequences that count up from a different number each, modulo the size of the vocabulary."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (torch.arange(16) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train a small GPT-2 from its configuration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrapper", choices=["shoal", "torch"], default="shoal")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    if parser.parse_args().wrapper == "shoal":
        torch.nn.parallel.DistributedDataParallel = shoal.DistributedDataParallel
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2,
                                       bos_token_id=0, eos_token_id=0))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=8, gradient_accumulation_steps=2,
            learning_rate=3e-3, eval_strategy="epoch", save_strategy="epoch", logging_steps=4, use_cpu=True,
            ddp_backend="gloo", report_to=[], disable_tqdm=True)  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=Counting(), eval_dataset=Counting())
        trainer.train()
        if trainer.is_world_process_zero():
            sha256 = hashlib.sha256(save(dict(model.named_parameters()))).hexdigest()
            sys.stdout.write(f"weights sha256 {sha256}\n")
        trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
