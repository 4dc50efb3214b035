"""`shoal train --help`, generated from the schema: a setting cannot exist without its line here."""

from shoal.cli.text import bold, dim, wrapped
from shoal.config.describe import Section, Setting, sections, takes_custom
from shoal.config.read import shipped_recipes

_HEAD = """Usage: shoal train [RECIPE] [--section.key value …]

RECIPE is a TOML file, or the name of one that comes with shoal: {recipes}.
Flags go over the recipe. A flag that names another choice than the recipe replaces that whole section.

  --resume RUN   go on with a run that was stopped (the folder under runs/)
  --json         print one JSON line last; everything else goes to standard error
  --quiet        no progress, only the closing summary

One worker of several, started by hand, in a terminal each; `torchrun` tells its workers the same things itself:
  --rank N --world-size N --master HOST:PORT [--join-timeout SECONDS] [--gpu N]
"""


def train_help() -> str:
    """The whole page."""
    pieces = [_HEAD.format(recipes=", ".join(shipped_recipes()))]
    last_path = ""
    for section in sections():
        if section.path != last_path:
            pieces.append(_heading(section))
            last_path = section.path
        pieces += _choice(section)
    return "\n".join(pieces)


def _heading(section: Section) -> str:
    if not section.name:
        return f"\n{bold(f'[{section.path}]')}  {section.sentence}"
    own = ", or package.module:function of your own" if takes_custom(section.path) else ""
    return f"\n{bold(f'[{section.path}]')}  --{section.path} NAME, one of these{own}"


def _choice(section: Section) -> list[str]:
    lines: list[str] = []
    if section.name:
        default = " (default)" if section.is_default else ""
        lines.append(f"  {bold(section.name)}{default}: {section.sentence}")
    return lines + [_setting(setting) for setting in section.settings]


def _setting(setting: Setting) -> str:
    flags = f"{setting.short}, {setting.flag}" if setting.short else setting.flag
    default = f"; default {setting.default}" if setting.default else ""
    return f"    {flags}  {dim(f'{setting.kind}{default}')}\n{wrapped(setting.sentence, 8)}"
