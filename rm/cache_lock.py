"""Waiting for a SQLite file that another process holds."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

BUSY_S = 60
"""Seconds that a process waits for another one's write."""


def patiently(step: Callable[[], Any], wait_s: float = BUSY_S) -> None:
    """Again while another process holds the file: SQLite does not wait where two turn to WAL at once.

    Raises:
        sqlite3.OperationalError: the step's own, when ``wait_s`` seconds are over or it means another fault.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            step()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(0.01)
