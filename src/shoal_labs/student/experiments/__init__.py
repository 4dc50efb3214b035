"""What is measured of a student's code, a file for each lab."""
