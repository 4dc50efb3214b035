"""Turn a run that trained a model of `examples/hf.py` into a folder that transformers loads.

    shoal train --model examples.hf:gpt2_small --data synthetic --data.task text --name gpt2
    python examples/hf_export.py runs/gpt2 gpt2

`GPT2LMHeadModel.from_pretrained("gpt2")` then has the weights of the run, whichever strategy trained it.
"""

import argparse
import sys
from pathlib import Path

from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.models import build
from shoal.strategies.pieces.state import load_weights
from shoal.training.saved import config_for, open_saved

MODEL = "examples.hf:gpt2_small"


def main() -> None:
    """Build the model of the run, load its weights, and save the part that is a model of transformers."""
    parser = argparse.ArgumentParser(description="Export a run for transformers.")
    parser.add_argument("run", type=Path, help="run folder, or its model.safetensors")
    parser.add_argument("folder", type=Path, help="folder for from_pretrained")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    options = parser.parse_args()
    if options.folder.is_file():
        raise ConfigError(f"{options.folder} is a file, expected a folder")
    saved = open_saved(options.run)
    trained = saved.settings.get("model", {})
    if trained.get("name") != MODEL:
        raise ConfigError(f"{options.run} trained the model {trained.get('name')}, expected {MODEL}")
    # The file's text names code to run, but this program names the same.
    chosen = config_for(saved, {"model": {"name": MODEL}}).model
    assert isinstance(chosen, Custom)
    model = build(chosen, (), 0, seed=0)
    load_weights(model, saved.weights)
    model.get_submodule("lm").save_pretrained(options.folder)
    sys.stdout.write(f"wrote {options.folder}\n")


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
