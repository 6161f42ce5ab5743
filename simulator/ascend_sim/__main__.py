"""``python -m ascend_sim``: the command ``ascend-sim``.

With ``--cmake`` it prints two paths for a CMake project instead: the file to include, then the folder of the
libraries, which the project sets as ``ASCEND_SIM_LIB``.
"""

from __future__ import annotations

import sys

from ascend_sim import cli, folders


def main() -> None:
    """Print the two paths, or run the command line."""
    if sys.argv[1:] != ["--cmake"]:
        return cli.main()
    print(folders.root() / "cmake" / "AscendSim.cmake")
    print(folders.library("ascend_sim").parent)


main()
