"""Launching and supervising the engines."""
