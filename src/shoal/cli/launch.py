"""`shoal launch`: a program of the user's own on several workers of this machine."""

from collections.abc import Sequence

from shoal.cli import text
from shoal.errors import ConfigError, unknown

USAGE = "shoal launch --workers N [--launcher processes|threads] [--group auto|shm|gloo|nccl] PROGRAM [ARGUMENT …]"
HELP = f"""Usage: {USAGE}

Runs PROGRAM, a Python file, once per worker. It gets its group with `shoal.join()`:

    import shoal, torch
    group = shoal.join()
    total = torch.ones(3)
    group.all_reduce(total).wait()          # 2 workers: every one now holds [2, 2, 2]

  --workers N    how many
  --launcher X   processes (default); threads: in one process, where a breakpoint works in every rank
  --group X      through what processes talk; auto (default) is shared memory on one machine

When one worker fails, all are ended, the first failure is shown, and its exit code is kept.
The same program also runs by itself (as a world of one) and under torchrun, unchanged."""
CHOICES = {"--launcher": ("processes", "threads"), "--group": ("auto", "shm", "gloo", "nccl")}


def run(argv: Sequence[str]) -> int:
    """Our options come before the program; what comes after it is the program's."""
    options, words = _own_options(argv)
    if "--help" in options:
        text.page(HELP)
        return 0
    if not words:
        raise ConfigError("which program?", f"Usage: {USAGE}")
    if "--workers" not in options:
        raise ConfigError("how many workers? --workers says it", f"Usage: {USAGE}")
    count = options["--workers"]
    if not count.isdigit() or int(count) < 1:
        raise ConfigError(f"--workers must be a number from 1, not '{count}'", f"Usage: {USAGE}")

    from shoal.launch import programs

    program, *arguments = words
    if options.get("--launcher") == "threads":
        programs.by_threads(program, arguments, int(count))
    else:
        programs.by_processes(program, arguments, int(count), options.get("--group", "auto"))
    return 0


def _own_options(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """
    >>> _own_options(["--workers", "2", "program.py", "--workers", "9"])
    ({'--workers': '2'}, ['program.py', '--workers', '9'])
    """
    found: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        if name in ("-h", "--help"):
            return {"--help": ""}, []
        if name not in ("--workers", *CHOICES):
            raise ConfigError(unknown("option", name, ["--workers", *CHOICES]), f"Usage: {USAGE}")
        if not value and not words:
            raise ConfigError(f"{name} needs a value", f"Usage: {USAGE}")
        found[name] = value or words.pop(0)
        if name in CHOICES and found[name] not in CHOICES[name]:
            raise ConfigError(unknown(name.removeprefix("--"), found[name], CHOICES[name]))
    return found, words
