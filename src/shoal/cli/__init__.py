"""The command line. Each command's module declares it as COMMAND; heavy imports stay inside functions.

More than fifteen modules, because each command has its own: `shoal --help` and a command import no other's.
"""
