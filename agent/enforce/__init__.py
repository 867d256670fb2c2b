"""The enforced gate: the kernel refuses new outside connections to an engine whose gate is closed."""
