"""Lab 1, solved, in the shape of the hand-out. `shoal lab start 1` cuts the marked tasks out of these files."""
