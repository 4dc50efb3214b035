"""`python -m shoal` is the command `shoal`."""

import os
import sys

if __name__ == "__main__":
    # `python -m` puts the current directory first, where a student's json.py may be. It stays if shoal itself is there.
    if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    try:
        from shoal.cli.entry import main

        main()
    except KeyboardInterrupt:  # before `main` has a handler for Ctrl-C
        os.write(2, b"interrupted\n")
        os._exit(130)
