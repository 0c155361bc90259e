"""``axiomrm …`` in a process that dies by SIGKILL just before the N-th rename whose target matches a pattern.

    python kill_driver.py PATTERN N run configs/micro.yaml …

A file or folder is put in place by a rename, so this is the moment in the middle of writing it.
"""

import os
import re
import signal
import sys
from typing import Any

from axiomrm.cli import main


def arm(pattern: str, number: int) -> None:
    """Set the trap for the rest of this process."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and re.search(pattern, os.fsdecode(arguments[1])):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
