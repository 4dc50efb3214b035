"""`python -m shoal` is the command `shoal`."""

from shoal.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
