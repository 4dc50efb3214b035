from shoal.launch.seat import join as join

__version__: str
