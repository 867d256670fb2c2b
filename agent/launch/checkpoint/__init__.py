"""The weights on disk: what is there, whether it is whole, and whether it fits the devices.

Only headers of safetensors files are read here (docs of the format: 8 bytes little-endian length, then JSON).
"""
