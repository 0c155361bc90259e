"""A scripted OpenAI-compatible server on the loopback interface: real sockets, answers as the test says."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Reply = tuple[int, dict[str, str], Any]
Answer = Callable[[Body], Reply]
CUT, CUT_INSIDE = 0, 1
"""Codes for a connection that is closed before, or inside, its reply."""


class Script:
    """What the server answers, in order; the last answer is repeated."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.models: Reply = (404, {}, b"")
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.active = self.most_active = 0
        self.url = ""
        self.lock = threading.Lock()

    def next_answer(self, body: Body, path: str, headers: dict[str, str]) -> Answer:
        with self.lock:
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            return self.answers[min(len(self.requests), len(self.answers)) - 1]


@contextmanager
def serving(script: Script) -> Iterator[Script]:
    """The script on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.tell(*script.models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = script.next_answer(body, self.path, dict(self.headers))
            try:
                self.tell(*answer(body))
            except OSError:
                self.close_connection = True  # the client has gone
            finally:
                with script.lock:
                    script.active -= 1

        def tell(self, code: int, headers: dict[str, str], reply: Any) -> None:
            payload = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            if code in (CUT, CUT_INSIDE):
                self.close_connection = True
                if code == CUT_INSIDE:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + payload)
                return
            self.send_response(code)
            for name, value in {"Content-Length": str(len(payload)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    script.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        http.shutdown()
        http.server_close()


def nonce_of(body: Body) -> str:
    user = [m["content"] for m in body["messages"] if m["role"] == "user"][-1]
    return str(user.rpartition("verdict[")[2].partition("]")[0])


def entries(pieces: list[str], label: str, top: dict[str, float]) -> list[dict[str, Any]]:
    listed = [{"token": k, "logprob": math.log(v)} for k, v in top.items()]
    return [{"token": t, "logprob": 0.0, "top_logprobs": listed if t == label else []} for t in pieces]


def verdict(label: str, logprobs: bool = True, model: str = "m", **p: float) -> Answer:
    """A well-behaved chat reply: the judge writes its verdict line, label as a token of its own."""

    def answer(body: Body) -> Reply:
        pieces = ["verdict[", nonce_of(body), "]=", label]
        choice: Body = {"message": {"content": "".join(pieces)}, "finish_reason": "stop"}
        if logprobs:
            choice["logprobs"] = {"content": entries(pieces, label, p)}
        usage = {"prompt_tokens": 100, "completion_tokens": 4}
        return 200, {}, {"choices": [choice], "model": model, "usage": usage}

    return answer


def completing(tokenizer: Any) -> Answer:
    """Completions of token ids, as vLLM's: labels in falling order, whatever the prompt."""

    def answer(body: Body) -> Reply:
        text = tokenizer.decode(body["prompt"]) if body.get("echo") else ""
        choice: Body = {"text": text, "finish_reason": "stop", "token_ids": [9]}
        if "logprobs" in body:
            top = {f"token_id:{i}": -0.5 - 2 * n for n, i in enumerate(body["logprob_token_ids"])}
            choice["logprobs"] = {"tokens": [next(iter(top))], "top_logprobs": [top]}
        return 200, {}, {"choices": [choice], "model": "m"}

    return answer


def status(code: int, reply: Any = b"", **headers: str) -> Answer:
    return lambda _: (code, {k.replace("_", "-"): v for k, v in headers.items()}, reply)


def after(seconds: float, answer: Answer) -> Answer:
    def late(body: Body) -> Reply:
        time.sleep(seconds)
        return answer(body)

    return late
