"""`python -m shoal` is the command `shoal`."""

import os
import sys

if __name__ == "__main__":
    # `python -m` puts the current directory first, which may be a student's folder with a json.py. It stays only if shoal
    # itself is there.
    if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    from shoal.cli.entry import main

    raise SystemExit(main())
