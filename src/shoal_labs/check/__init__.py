"""`shoal lab check`: a student's solution, checked task by task, with a sentence for each fault."""
