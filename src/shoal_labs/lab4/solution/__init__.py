"""Lab 4, solved, in the shape of the hand-out. `shoal lab start 4` cuts the marked tasks out of these files."""
