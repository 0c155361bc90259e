"""The database behind the reading cache, on SQLite and on a real PostgreSQL server."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.cache_lock import patiently
from axiomrm.rm.cache_sql import ReadingStore, Row, default_place

BINARIES = ("initdb", "pg_ctl", "postgres")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Path]]:
    """Socket folder and data folder of a throwaway PostgreSQL that listens on no port."""
    if not all(shutil.which(name) for name in BINARIES):
        pytest.skip("no PostgreSQL on this machine (initdb, pg_ctl, postgres on PATH)")
    root = Path(tempfile.mkdtemp(prefix="axiomrm-pg-", dir="/tmp"))  # socket paths are short
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(root, "postgres", "postgres")
    data = root / "data"
    options = f"-F -k {root} -c listen_addresses="
    init = ["initdb", "-D", str(data), "-A", "trust", "-U", "axiomrm", "--no-sync", "-E", "UTF8"]
    start = ["pg_ctl", "-D", str(data), "-w", "-o", options, "-l", str(root / "log"), "start"]
    try:
        for command in (init, start):
            subprocess.run([*as_user, *command], cwd=root, check=True, stdout=subprocess.DEVNULL)
        yield str(root), data
    finally:
        stop = ["pg_ctl", "-D", str(data), "-m", "immediate", "stop"]
        subprocess.run([*as_user, *stop], cwd=root, check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "readings.sqlite")
    return fresh_database(request.getfixturevalue("server")[0])


def fresh_database(socket: str) -> str:
    import psycopg

    name = f"d{time.monotonic_ns()}"
    with psycopg.connect(host=socket, user="axiomrm", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://axiomrm@/{name}?host={socket}"


@pytest.fixture()
def opened() -> Iterator[Callable[[str], ReadingStore]]:
    stores: list[ReadingStore] = []

    def open_(place: str) -> ReadingStore:
        stores.append(ReadingStore(place))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def row(key: str, payload: str = "{}", scope: str = "", kind: str = "labels") -> Row:
    return Row(key, kind, "judge-1", scope, payload)


Open = Callable[[str], ReadingStore]


def test_what_was_put_is_got_by_another_store(place: str, opened: Open) -> None:
    text = '{"text": "naïve \\u0000 \\ud83d 漢"}'
    opened(place).put([row("a", text), row("b", "2")])
    assert opened(place).get(["a", "b", "absent"]) == {"a": text, "b": "2"}
    assert opened(place).get([]) == {}


def test_the_first_of_two_rows_of_a_key_stays(place: str, opened: Open) -> None:
    store = opened(place)
    store.put([row("a", "first")])
    store.put([row("a", "second"), row("b", "new")])
    assert store.get(["a", "b"]) == {"a": "first", "b": "new"}


def test_many_keys_take_several_queries(place: str, opened: Open) -> None:
    store = opened(place)
    store.put([row(f"k{i}", str(i)) for i in range(1001)])
    assert store.get([f"k{i}" for i in range(1001)]) == {f"k{i}": str(i) for i in range(1001)}


def test_stats_count_and_pruning_drops_the_old(place: str, opened: Open) -> None:
    store = opened(place)
    assert store.stats()[1:7] == (0, {}, {}, 0, None, None)
    store.put([row("a"), row("b", scope="u1"), row("c", scope="u2", kind="generation")])
    found = store.stats()
    assert (found.readings, found.kinds, found.judges) == (3, {"generation": 1, "labels": 2}, {"judge-1": 3})
    assert (found.scopes, found.bytes > 0) == (2, True)
    assert abs((found.oldest or 0) - time.time()) < 100
    assert store.prune(time.time() - 100) == 0
    assert store.prune(time.time() + 100, judge="judge-2") == 0
    assert store.prune(time.time() + 100, judge="judge-") == 3
    assert store.stats().readings == 0


def test_erasing_a_scope_leaves_no_row_of_it_and_all_others(place: str, opened: Open) -> None:
    store = opened(place)
    store.put([row(f"k{i}", "kept", scope=f"user-{i % 3}") for i in range(90)])
    assert store.erase("user-1") == 30
    assert opened(place).get([f"k{i}" for i in range(90)]).keys() == {
        f"k{i}" for i in range(90) if i % 3 != 1
    }
    assert (store.erase("user-1"), store.erase(""), store.stats().scopes) == (0, 0, 2)


def test_erasing_leaves_no_bytes_in_sqlites_files(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "readings.sqlite"
    store = opened(str(path))
    store.put([row(f"k{i}", f"SECRETWORD {i} " * 40, scope="user-1") for i in range(200)])
    store.put([row(f"x{i}", "other " * 40, scope="user-2") for i in range(200)])
    files = [tmp_path / f"readings.sqlite{end}" for end in ("", "-wal")]
    assert any(b"SECRETWORD" in file.read_bytes() for file in files)
    assert store.erase("user-1") == 200
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"SECRETWORD" not in held and b"user-1" not in held and b"other" in held


def test_erasing_leaves_no_bytes_in_postgresqls_table(server: tuple[str, Path], opened: Open) -> None:
    socket, data = server
    url = fresh_database(socket)
    store = opened(url)
    store.put([row(f"k{i}", f"SECRETWORD {i}", scope="user-1") for i in range(50)])
    store.put([row("other", "kept")])

    def held() -> bytes:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            (name,) = connection.execute("SELECT pg_relation_filepath('axiomrm_readings')").fetchone() or (
                "",
            )
        return (data / str(name)).read_bytes()

    assert b"SECRETWORD" in held()
    assert store.erase("user-1") == 50
    assert b"SECRETWORD" not in held() and b"kept" in held()


def test_erasing_says_when_another_reader_keeps_the_log(tmp_path: Path, opened: Open) -> None:
    path = str(tmp_path / "readings.sqlite")
    store = opened(path)
    store.put([row("a", scope="u"), row("b")])
    with sqlite3.connect(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM axiomrm_readings").fetchone()
        store._engine.dispose()
        with pytest.raises(DataError, match="run the command again"):
            impatient(path).erase("u")
        reader.rollback()
    reader.close()
    assert store.get(["a", "b"]) == {"b": "{}"}
    assert store.erase("u") == 0


def impatient(path: str) -> ReadingStore:
    from unittest.mock import patch

    with patch("axiomrm.rm.cache_sql.BUSY_S", 0.1):
        return ReadingStore(path)


def test_another_version_is_refused(place: str, opened: Open) -> None:
    store = opened(place)
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE axiomrm_cache SET value = '0' WHERE name = 'schema'")
    with pytest.raises(ConfigError, match="schema version '0'"):
        ReadingStore(place)


def test_a_row_that_was_changed_is_not_read(place: str, opened: Open) -> None:
    store = opened(place)
    store.put([row("a", '{"Y": -0.1}'), row("b", '{"Y": -9.9}')])
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE axiomrm_readings SET payload = '{\"Y\": -9.1}' WHERE key = 'a'")
    assert store.get(["b"]) == {"b": '{"Y": -9.9}'}
    with pytest.raises(DataError, match="row a… is damaged"):
        store.get(["a", "b"])


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 100)
    with pytest.raises(ConfigError, match=r"notes\.txt: file is not a database.*name another file"):
        ReadingStore(path)
    assert path.read_text() == "not a database " * 100


def test_a_damaged_file_is_an_error_and_no_missing_reading(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "readings.sqlite"
    store = opened(str(path))
    store.put([row(f"k{i}", "x" * 500) for i in range(300)])
    store.erase("nobody")  # everything is in the main file now
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as handle:
        handle.seek(size // 3)
        handle.write(b"\xff" * (size // 2))
    with pytest.raises((DataError, ConfigError), match=r"readings\.sqlite.*(malformed|damaged)"):
        opened(str(path)).get([f"k{i}" for i in range(300)])


def test_places_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'mysql' is no database of ours"):
        ReadingStore("mysql://u:hidden@host/db")
    with pytest.raises(ConfigError, match="cannot be opened: "):
        ReadingStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened: "):
        ReadingStore(tmp_path / "file" / "readings.sqlite")
    with pytest.raises(ConfigError) as caught:
        ReadingStore("postgresql://u:hidden@127.0.0.1:9/db?connect_timeout=1")
    assert "hidden" not in str(caught.value) and "127.0.0.1" in str(caught.value)


def test_only_its_owner_may_read_the_file(tmp_path: Path, opened: Open) -> None:
    opened(str(tmp_path / "deep" / "readings.sqlite")).put([row("a")])
    assert all(f.stat().st_mode & 0o077 == 0 for f in (tmp_path / "deep").iterdir())


def test_the_default_place_follows_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_place() == Path("/somewhere/axiomrm/readings.sqlite")


WORKER = """
import sys
from axiomrm.rm.cache_sql import ReadingStore, Row
place, me = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
store = ReadingStore(place)
seen = 0
for i in range(0, 90, 5):
    # Every third key is the other one's too, and both write it at about the same time.
    keys = [f"shared{n}" if n % 3 == 0 else f"p{me}-{n}" for n in range(i, i + 5)]
    store.put([Row(k, "labels", "j", "", f"{k} {'x' * 200}") for k in keys])
    mine = store.get([f"shared{n}" if n % 3 == 0 else f"p{me}-{n}" for n in range(i + 5)])
    assert len(mine) == i + 5, (len(mine), i)
    other = store.get([f"p{1 - me}-{n}" for n in range(90)])
    assert all(v == f"{k} {'x' * 200}" for k, v in {**mine, **other}.items())
    assert len(other) >= seen
    seen = len(other)
print("done", flush=True)
"""


def test_two_processes_lose_and_mix_no_reading(place: str, opened: Open) -> None:
    command = [sys.executable, "-c", WORKER, place]
    workers = [
        subprocess.Popen([*command, str(me)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for me in (0, 1)
    ]
    for worker in workers:
        assert worker.stdout and worker.stdout.readline() == "ready\n"
    for worker in workers:  # both meet a database without tables
        assert worker.stdin
        worker.stdin.write("\n")
        worker.stdin.flush()
    assert [worker.communicate(timeout=100)[0] for worker in workers] == ["done\n", "done\n"]
    keys = [f"shared{n}" for n in range(0, 90, 3)] + [f"p{m}-{n}" for m in (0, 1) for n in range(90) if n % 3]
    assert opened(place).get(keys) == {key: f"{key} {'x' * 200}" for key in keys}


def test_a_database_that_is_locked_for_a_moment_is_waited_for() -> None:
    answers = [sqlite3.OperationalError("database is locked")] * 2

    def step() -> None:
        if answers:
            raise answers.pop()

    patiently(step)
    assert not answers
    with pytest.raises(sqlite3.OperationalError, match="no such pragma"):
        patiently(lambda: (_ for _ in ()).throw(sqlite3.OperationalError("no such pragma")).__next__())
    answers += [sqlite3.OperationalError("database is locked")] * 3
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        patiently(step, wait_s=0)
