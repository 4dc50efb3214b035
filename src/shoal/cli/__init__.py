"""The command line. Each command is a module with `run(argv) -> exit code`; heavy imports stay inside functions."""
