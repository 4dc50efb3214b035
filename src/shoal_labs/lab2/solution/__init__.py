"""Lab 2, solved, in the shape of the hand-out. `shoal lab start 2` cuts the marked tasks out of these files."""
