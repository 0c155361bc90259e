"""A vLLM server for judge_throughput, and processor time of a tree of processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

START_S = 900
TICKS = os.sysconf("SC_CLK_TCK")


class Server(NamedTuple):
    """A server that was started."""

    url: str
    """Up to ``/v1``."""
    process: "subprocess.Popen[bytes]"
    log: Path

    def check(self) -> None:
        """Raise ``SystemExit`` if it has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the server ended with {self.process.returncode}: see {self.log}")


@contextmanager
def served(model: str, dtype: str, log: Path, max_model_len: int) -> Iterator[Server]:
    """A server on this model; it ends with the block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", "judge"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", dtype]
    command += ["--enforce-eager", "--max-model-len", str(max_model_len)]
    command += ["--no-enable-chunked-prefill"]  # with seeds it ends the engine on a CPU, vLLM 0.32
    threads = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **threads})
        try:
            server = Server(f"http://127.0.0.1:{port}/v1", process, log)
            _wait(server, f"http://127.0.0.1:{port}/health")
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _wait(server: Server, url: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        server.check()
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(2)
    raise SystemExit(f"the server was not ready after {START_S} s: see {server.log}")


def cpu_seconds(root: int) -> float:
    """Processor time so far of a process and all below it, ended children included."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15]))
    total, queue = 0, [root]
    while queue:
        pid = queue.pop()
        total += spent.get(pid, 0)
        queue += parents.get(pid, [])
    return total / TICKS
