"""`python -m tracestep` is the program, and `python -m tracestep capture` what only Python can do."""
import os
import sys

from ._program import program

if __name__ == "__main__":
    if sys.argv[1:2] == ["capture"]:
        from ._capture.cli import main

        sys.exit(main(sys.argv[2:]))
    os.execv(program(), ["tracestep", *sys.argv[1:]])
