"""The command line. Each command's module declares it as COMMAND; heavy imports stay inside functions."""
