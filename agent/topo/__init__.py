"""A node's topology as NCCL reads it: a file in its dialect, the machine, what the profile expects."""
