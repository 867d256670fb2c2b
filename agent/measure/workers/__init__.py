"""Scripts that run in the engine's own Python; nodegate names their files and imports none of them."""
