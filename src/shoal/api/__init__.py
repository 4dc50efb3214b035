"""What a program calls: `shoal.train` and its callbacks. The command line is a client of it."""
