"""What a run would do: everything is checked and built, and nothing is trained or written."""

from shoal.api.display import headline
from shoal.api.loggers import loggers_of
from shoal.config.schema import RunConfig
from shoal.data.load import load
from shoal.launch.run import check_run
from shoal.training.build import build_measures, build_model, torch_settings
from shoal.training.evaluation import BestEpoch
from shoal.training.progress import total_steps


def dry_run(config: RunConfig) -> list[str]:
    """Check the settings, read the data, build the model and try it on a few samples; return lines about the run."""
    check_run(config)
    loggers_of(config)
    with torch_settings(config) as device:
        data = load(config.data)
        model = build_model(config, data)
        BestEpoch.of(config.stop, data, build_measures(config, model, data))
    train, samples = config.train, len(data.train)
    batch = train.batch_size if isinstance(train.batch_size, int) else samples
    steps = total_steps(samples, batch, train.epochs, train.steps)
    weights = sum(param.numel() for param in model.parameters() if param.requires_grad)
    fixed = sum(param.numel() for param in model.parameters()) - weights
    held_out = f", {len(data.validation):,} for validation" if data.validation is not None else ""
    shape = list(data.input_shape)
    return [
        headline(config, str(device)),
        f"  data     {samples:,} training samples of shape {shape}{held_out}, {len(data.test):,} for test",
        f"  model    {weights:,} trained parameters" + (f", {fixed:,} fixed" if fixed else ""),
        f"  steps    {steps:,}, of {batch:,} samples",
        "nothing was trained or written",
    ]
