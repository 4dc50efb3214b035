"""The pipeline layout: the model cut into stages, and the schedules that keep them busy."""
