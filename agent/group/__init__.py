"""One model over several nodes: its ranks start, serve and stop together."""
