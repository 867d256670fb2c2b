"""The node's topology as NCCL reads it: a file in NCCL's dialect, the machine, and what the profile expects."""
