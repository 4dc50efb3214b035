"""Lab 3, solved, in the shape of the hand-out. `shoal lab start 3` cuts the marked tasks out of these files."""
