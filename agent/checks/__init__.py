"""The checks: one family a file, each with its cases under tests/cases/."""
