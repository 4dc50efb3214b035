"""Workers that wait for each other without end: where each of them is, who is to blame, and the picture of it."""
