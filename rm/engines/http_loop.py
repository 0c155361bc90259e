"""Coroutines for synchronous callers: one event loop in a thread of its own.

A loop of our own works where the caller already runs one (notebooks), keeps connections between batches, and
lets Ctrl-C cancel what is in flight before it goes on.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

T = TypeVar("T")
_LOOK_UP_S = 0.2
"""How often a waiting caller looks up: an interrupt that another thread has caught is seen by then."""
_GOODBYE_S = 2.0
"""How long an interrupted call waits for its requests to be dropped."""


class LoopThread:
    """An event loop that runs until ``stop``; a daemon, so it holds no process back."""

    def __init__(self) -> None:
        """Start it."""
        self.pid = os.getpid()
        """A forked child has no such thread and needs a new one."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="axiomrm-http", daemon=True)
        self._thread.start()

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The coroutine's result; whatever interrupts the wait (Ctrl-C) cancels it first."""
        ended = threading.Event()

        async def told() -> T:
            try:
                return await make()
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(told(), self._loop)
        try:
            while not wait([future], _LOOK_UP_S).done:
                pass
            return future.result()
        except BaseException:
            if future.cancel():
                ended.wait(_GOODBYE_S)
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel what still runs, run ``last`` and end the thread."""
        if self.pid != os.getpid() or self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:  # collected as garbage by its own loop
            self._loop.stop()
            return
        for goodbye in (_cancel_others, *([last] if last else [])):
            asyncio.run_coroutine_threadsafe(goodbye(), self._loop).result(_GOODBYE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_GOODBYE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
