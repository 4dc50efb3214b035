"""`torchrun --nproc_per_node=2 -m shoal.profile PROGRAM …`: record the steps of a program on every worker."""

import os
import runpy
import sys

from shoal.errors import ConfigError, ShoalError
from shoal.profile.profile import profiled


def main() -> int:
    """Run the program in this process, as one worker; its own errors stay as they are."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: torchrun --nproc_per_node=N -m shoal.profile PROGRAM [ARGUMENT …]\n")
        return ConfigError.exit_code
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # as when Python itself runs a file
    try:
        with profiled(sys.argv):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except ShoalError as error:
        sys.stderr.write(f"error: {error}\nNo profile was written.\n")
        return error.exit_code
    except Exception:
        sys.stderr.write("The program failed: no profile was written.\n")
        raise
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
