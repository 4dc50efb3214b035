"""`python -m shoal_labs LAB …` is `shoal lab LAB …`, also where nothing was installed."""

import sys

from shoal.kit.command import main
from shoal_labs.command.command import COMMAND

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], COMMAND))
