"""Settings of a node: read, compare, write, read back. Plain Python 3.11 with nothing but its own library.

Ansible's modules use it, and the same files are installed on the node for the units that run at boot.
"""
