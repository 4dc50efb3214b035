"""`shoal lab check`: a student's solution, tried task by task, with a sentence for whatever is wrong."""
