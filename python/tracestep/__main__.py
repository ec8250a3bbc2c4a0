"""`python -m tracestep` is the program."""
import os
import sys

from ._program import program

if __name__ == "__main__":
    os.execv(program(), ["tracestep", *sys.argv[1:]])
