"""`shoal completion`: scripts that complete commands, flags and choices in bash, zsh and fish.

All of them are one table of rows (patterns, words). A pattern is compared with COMMAND@WORD BEFORE@WORD, and the first
row that matches has the candidates; without any, the shell completes file names. Functions import the settings of a run
themselves, because `shoal --help` loads this module.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from shoal.cli import text
from shoal.cli.command import Command, CommandGroup, Given
from shoal.cli.main import all_commands, declared
from shoal.config.flags import Flags, flags_of
from shoal.config.kinds import literals, without_none
from shoal.errors import ConfigError, unknown

Row = tuple[Iterable[str], Iterable[str]]

_KEY = """
    local command=$1 before=$2 word=$3
    case $before in %(switches)s) before= ;; esac
    case $command@$before@$word in
%(rows)s
    esac"""
_SH = "_shoal_words() {" + _KEY + "\n}\n"
BASH = (
    _SH
    + r"""
_shoal() {
    local IFS=$' \t\n' words word before command
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    word=${words[${#words[@]}-1]} before=${words[${#words[@]}-2]}
    (( ${#words[@]} > 2 )) && command=${words[1]}
    case $command in %(groups)s) (( ${#words[@]} > 3 )) && command+=-${words[2]} ;; esac
    [[ $word == --*=* ]] && before=${word%%%%=*} word=${word#*=}
    COMPREPLY=($(compgen -W "$(_shoal_words "$command" "$before" "$word")" -- "$word"))
    # Readline replaces only what follows the last colon.
    COMPREPLY=("${COMPREPLY[@]#"${word%%"${word##*:}"}"}")
}
complete -o default -F _shoal shoal
"""
)
ZSH = (
    "#compdef shoal\n"
    + _SH
    + r"""
_shoal() {
    local command before=$words[CURRENT-1] word=$words[CURRENT]
    (( CURRENT > 2 )) && command=$words[2]
    case $command in %(groups)s) (( CURRENT > 3 )) && command+=-$words[3] ;; esac
    [[ $word == --*=* ]] && before=${word%%%%=*} word=${word#*=} && compset -P '*='
    compadd -- ${=$(_shoal_words "$command" "$before" "$word")} || _files
}
if [[ $funcstack[1] == _shoal ]]; then _shoal "$@"; else compdef _shoal shoal; fi
"""
)
FISH = r"""function _shoal_words
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l command $words[2]
    switch "$command"
        case %(groups)s
            test (count $words) -gt 2; and set command $command-$words[3]
    end
    set -l before
    test (count $words) -gt 1; and set before $words[-1]
    set -l start ''
    if string match -q -- '--*=*' $word
        set before (string split -m 1 = -- $word)[1]
        set start $before=
    end
    switch "$before"
        case %(switches)s
            set before
    end
    set -l found
    switch "$command@$before@$word"
%(rows)s
    end
    set found (string split -n ' ' -- $found)
    test -n "$found"; and string match -- "$word*" $start$found
end
complete -c shoal -f -a '(_shoal_words; or __fish_complete_path (commandline -ct))'
"""


def run(given: Given[Flags]) -> int:
    """Print a script for your shell, which completes commands, flags and choices.

        eval "$(shoal completion bash)"            in ~/.bashrc
        eval "$(shoal completion zsh)"             in ~/.zshrc, after compinit
        shoal completion fish > shoal.fish         in ~/.config/fish/completions

    The script asks nothing of shoal when it completes: it lists the words of this version.
    """
    shell = given.words[0]
    if shell not in SHELLS:
        raise ConfigError(unknown("shell", shell, SHELLS))
    text.show(script(shell).rstrip())
    return 0


SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
COMMAND = Command("completion", run, Flags, words="SHELL")


def script(shell: str) -> str:
    """The script for a shell."""
    template, is_fish = SHELLS[shell], shell == "fish"
    switches = sorted({name for command in _commands().values() for name in _switches(command)})
    groups = [*(name for name in all_commands() if isinstance(declared(name), CommandGroup)), "help"]
    quoted = (lambda names: " ".join(f"'{name}'" for name in names)) if is_fish else "|".join
    row = "        case {}\n            set found '{}'" if is_fish else "        {}) echo '{}' ;;"
    rows = "\n".join(row.format(quoted(patterns), " ".join(words)) for patterns, words in _rows())
    return template % {"switches": quoted(switches), "groups": quoted(groups), "rows": rows}


def _rows() -> Iterator[Row]:
    """The table: values of flags first, then flags, then words."""
    from shoal.cli.topics import topics
    from shoal.config.read import shipped_recipes
    from shoal.explain.names import KINDS

    commands, settings = _commands(), _settings()
    values: dict[str, dict[tuple[str, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in commands.items():
        own = {flag.name: literals(flag.kind) for flag in flags_of(command.flags)}
        for flag, words in {**{each: settings[each] for each in _taken(command, settings)}, **own}.items():
            if words:
                values[flag][words].append(name)
    patterns: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for flag, choices in values.items():
        for words, owners in choices.items():
            patterns[words] += [f"{name}@{flag}@*" for name in (owners if len(choices) > 1 else "*")]
    yield from ((each, words) for words, each in patterns.items())
    everything = [name for name, command in commands.items() if "*" in command.settings]
    yield [f"{name}@--help@*" for name in everything] + [f"help-{name}@*" for name in everything], topics()
    yield ["*@-*@*"], ()  # the value of any other flag
    yield [f"{name}@*@--*.*" for name in everything], [name for name in settings if "." in name]
    for name, command in commands.items():
        own = {flag.name: () for flag in flags_of(command.flags)}
        yield [f"{name}@*@-*"], own | {flag: () for flag in _taken(command, settings) if "." not in flag}
    yield [f"{name}@*" for name in commands if "RECIPE" in commands[name].words], shipped_recipes()
    yield ["completion@*"], SHELLS
    yield ["explain@*"], [name for kind in KINDS.values() for name in kind.names]
    for name in all_commands():
        command = declared(name)
        if isinstance(command, CommandGroup):
            yield [f"{name}@*"], command.commands
    yield ["@*", "help@*"], [*all_commands(), "help", "--version"]


def _commands() -> dict[str, Command[Any]]:
    """Every command; one of a group as `data-fetch`."""
    found: dict[str, Command[Any]] = {}
    for name in all_commands():
        command = declared(name)
        parts = command.commands.items() if isinstance(command, CommandGroup) else [("", command)]
        found |= {f"{name}-{part}".rstrip("-"): each for part, each in parts}
    return found


def _settings() -> dict[str, tuple[str, ...]]:
    """The flags of a run's settings, each with the words that it takes, as far as they are known."""
    from shoal.cli.topics import sections
    from shoal.config.sections.sync import STRATEGIES

    found: dict[str, list[str]] = defaultdict(list, {"--strategy": list(STRATEGIES)})
    for section in sections():
        if section.name:
            found[f"--{section.path}"].append(section.name)
        for flag in section.flags:
            words, names = literals(without_none(flag.kind)), [*flag.aliases, flag.name]
            if section.path in ("sync", "pipeline", "tensor"):
                names.append(f"--strategy.{flag.field}")
            for name in names:
                found[name] += words
            if getattr(flag.owner, "SHORT", None) == flag.field:
                found[f"--{section.path}"] += [f"{section.name}:{word}" for word in words]
    return {name: tuple(dict.fromkeys(words)) for name, words in found.items()}


def _taken(command: Command[Any], settings: Iterable[str]) -> list[str]:
    """The flags of settings that a command takes."""
    from shoal.config.read import path_of

    paths = {flag: path_of(flag) or "" for flag in settings}
    return [flag for flag, path in paths.items() if {"*", path, path.partition(".")[0]} & {*command.settings}]


def _switches(command: Command[Any]) -> Iterator[str]:
    """The flags that take no value; --help takes a name."""
    from shoal.cli.topics import sections

    flags = flags_of(command.flags)
    if command.settings:
        flags += [flag for section in sections() for flag in section.flags]
    yield from (
        name
        for flag in flags
        if flag.kind is bool and flag.name != "--help"
        for name in (flag.name, *flag.aliases)
    )
