"""Checklists: ordered steps that prove a node, resumable, with a record that outlives them."""
