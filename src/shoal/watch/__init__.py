"""The live view of a run: follows its folder, and shows it as a page or on the terminal."""
