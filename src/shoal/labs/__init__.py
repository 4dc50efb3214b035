"""The labs of the course: each runs its experiment and writes a report, or hands out a skeleton to begin from."""
