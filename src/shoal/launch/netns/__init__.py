"""A cluster of virtual machines on this one: nodes made of Linux namespaces, with links that the kernel shapes."""
