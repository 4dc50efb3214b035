"""`shoal config`: recipes from the settings of other programs, and the schema of recipes for editors."""

from dataclasses import dataclass
from pathlib import Path

from shoal.cli import text
from shoal.cli.command import Command, CommandGroup, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import Count


@dataclass(frozen=True)
class FromDeepSpeedFlags(Flags):
    """What the file does not say, and where the recipe goes."""

    output: Path | None = None
    """Write the recipe to this file, which must not exist; otherwise to standard output."""
    workers: Count | None = None
    """Number of workers (GPUs) of the DeepSpeed run; needed unless the file has all three batch sizes."""


def _from_deepspeed(given: Given[FromDeepSpeedFlags]) -> int:
    """Translate a ds_config.json into a recipe for `shoal train`, and name every key that has no counterpart.

    The recipe holds strategy, precision, optimizer, schedule, batch sizes and clipping; as comments, it lists the keys
    that it does not hold, each with the reason or the nearest thing. Values that are "auto", which the Trainer of
    transformers fills in, are listed too. A ds_config names neither data nor model. docs/en/deepspeed.md has a table
    of keys.

    Start with:  shoal config from-deepspeed ds_config.json
    """
    from shoal.config.deepspeed import as_recipe, read_ds_config, remark_lines, translate
    from shoal.config.read import from_tree, parse_toml

    source, output = Path(given.words[0]), given.flags.output
    translation = translate(read_ds_config(source), given.flags.workers)
    recipe = as_recipe(translation, source.name)
    from_tree(parse_toml(recipe, output or source))  # combinations that no run can have are refused
    if output is None:
        text.show(recipe.rstrip())
        return 0
    text.write_new_file(output, recipe)
    for line in remark_lines(translation, text.page_width()):
        text.show(line)
    text.show(f"\nwrote {output}: shoal train {output} --data NAME --model NAME")
    return 0


def _schema(given: Given[Flags]) -> int:
    """Print the JSON schema of recipes, with which an editor completes and checks them.

        shoal config schema > recipe.schema.json
        #:schema ./recipe.schema.json

    The second line is the first of a recipe, for editors with taplo (in VS Code: Even Better TOML). The schema has
    every section and setting; whether settings can be combined, `shoal train RECIPE --dry-run` checks.
    """
    import json

    from shoal.config.json_schema import recipe_schema

    text.show(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
    return 0


COMMAND = CommandGroup(
    "config",
    "Translate the configuration of another program into a recipe; describe recipes to editors.",
    {
        "from-deepspeed": Command(
            "config from-deepspeed", _from_deepspeed, FromDeepSpeedFlags, words="DS_CONFIG.json"
        ),
        "schema": Command("config schema", _schema, Flags),
    },
)
