"""The program Tidegate, as pip installs it: `tidegate` among the environment's programs.

For what asks it, there is the package `tidegate`, which is a client.
"""

import os
import sysconfig


def program() -> str:
    """Where the program is.

    Raises:
        FileNotFoundError: it has been moved away from what it was installed with.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    user = (
        sysconfig.get_preferred_scheme("user") if hasattr(sysconfig, "get_preferred_scheme") else "posix_user"
    )
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=user),
        # Of `pip install --target`.
        os.path.join(os.path.dirname(here), "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder, "tidegate")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError("tidegate is in none of " + ", ".join(folders))
