"""`python -m falkirk`: the same as the command `falkirk`."""

from __future__ import annotations

from falkirk.command import main

if __name__ == "__main__":
    main()
