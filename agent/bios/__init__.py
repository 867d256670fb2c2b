"""BIOS settings by intent, and the attributes by which each vendor's BIOS is told of them."""
