"""``ascend-sim toolkit``: a folder laid out as CANN's, for programs in C or C++."""

# typer evaluates annotations, so they are not postponed here.

from pathlib import Path
from typing import Annotated

import typer

from ascend_sim.cli.application import usage_error
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.programs.toolkit import cached, make


def toolkit(
    folder: Annotated[
        str | None,
        typer.Argument(help="The folder to write; without it, a folder in the cache.", show_default=False),
    ] = None,
) -> None:
    """Print the path of a folder laid out as CANN's toolkit, for C and C++.

    The folder has headers of acl, aclnn and aclnnop, securec.h, libraries with
    CANN's names, and set_env.sh, which sets CANN's variables. A program compiles
    and links with the flags for the real CANN. Every function of libopapi, acl
    and aclop links; one that is not simulated fails with its name when it is
    called. The folder has no file of CANN itself.

    Run the program with ascend-sim run. The libraries are links into the
    installed ascend_sim: write the folder again after another installation.

    Exit status: 0 success; 2 bad usage or a missing piece.

    Examples:

      ascend-sim toolkit cann

      g++ app.cpp -Icann/include -Lcann/lib64 -lascendcl -lnnopbase -lopapi -o app

      ascend-sim run -- ./app

      source cann/set_env.sh

      ASCEND_TOOLKIT_HOME=$(ascend-sim toolkit) cmake -B build
    """
    try:
        if folder == "":
            raise bad_value("folder must be a path but got an empty text.")
        path = cached() if folder is None else Path(folder)
        if folder is not None:
            make(path)
    except (ValueError, Unavailable) as error:
        raise usage_error(str(error)) from None
    print(path.resolve())
