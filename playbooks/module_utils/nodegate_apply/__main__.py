"""`python3 -m nodegate_apply NAME ...`, see boot.py."""

import sys

from .boot import main

if __name__ == "__main__":
    sys.exit(main())
