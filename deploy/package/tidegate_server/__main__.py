"""`python -m tidegate_server`: the program in the place of Python."""

import os
import sys

from tidegate_server import program

if __name__ == "__main__":
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
