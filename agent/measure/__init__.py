"""Measured tests of a node: each module registers its own with `agent.checklist.measure.measure`."""
