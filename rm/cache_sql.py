"""Readings in a SQL database: SQLite by path, PostgreSQL by URL.

Several processes may use one database. A row is written once and never changed, under the hash of all that it
depends on; of two processes that computed the same reading the first one's row stays. SQLite keeps a
write-ahead log, so readers never wait; its file must lie on a local disk.

Covers: erasure by scope out of tables, SQLite's file and its log.
Does not cover: backups, PostgreSQL's archived log, what a file system or an SSD keeps of freed blocks.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.cache_key import SCHEMA
from axiomrm.rm.cache_lock import BUSY_S, patiently

_CHUNK = 400
"""Keys of one query, below SQLite's oldest limit of variables."""
_CREATING = 0x61786F6D
"""PostgreSQL advisory lock while tables are made: two first users would both make them."""
_tables = sa.MetaData()
_about = sa.Table(
    "axiomrm_cache",
    _tables,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)
_readings = sa.Table(
    "axiomrm_readings",
    _tables,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("judge", sa.String(64), nullable=False),
    sa.Column("scope", sa.Text, nullable=False, index=True),
    sa.Column("created", sa.BigInteger, nullable=False, index=True),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("checksum", sa.String(32), nullable=False),
)


class Row(NamedTuple):
    """One reading to keep."""

    key: str
    kind: str
    """``labels`` or ``generation``."""
    judge: str
    """Hash of the engine and of what shapes its prompts."""
    scope: str
    """Opaque name of whose consent the reading rests on; empty: nobody's."""
    payload: str


class Stats(NamedTuple):
    """What a cache holds."""

    place: str
    readings: int
    kinds: Mapping[str, int]
    judges: Mapping[str, int]
    """Readings by judge hash."""
    scopes: int
    """Different scopes, the empty one not counted."""
    oldest: int | None
    """Seconds since 1970; ``None``: nothing is stored."""
    newest: int | None
    bytes: int


class ReadingStore:
    """The database behind a reading cache."""

    def __init__(self, place: str | Path) -> None:
        """Open a database, and make its tables where there are none.

        Args:
            place: a file, or a ``postgresql://`` URL.

        Raises:
            ConfigError: it cannot be opened, or another version of axiomrm made it.
        """
        self._url, self._file = _resolve(place)
        self.place = str(self._file or self._url.render_as_string(hide_password=True))
        self._engine = _connect(self._url, self._file)
        try:
            with self._speaking():
                self._prepare()
        except DataError as error:
            self.close()
            raise ConfigError(str(error)) from error

    @classmethod
    def existing(cls, place: str | Path) -> "ReadingStore | None":
        """Open a database, but make no file; ``None``: there is none."""
        file = _resolve(place)[1]
        return None if file is not None and not file.is_file() else cls(place)

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """Payloads of the keys that are stored.

        Raises:
            DataError: the database cannot be read, or a row was damaged.
        """
        found: dict[str, str] = {}
        columns = (_readings.c.key, _readings.c.payload, _readings.c.checksum)
        with self._speaking(), self._engine.connect() as connection:
            for at in range(0, len(keys), _CHUNK):
                query = sa.select(*columns).where(_readings.c.key.in_(keys[at : at + _CHUNK]))
                for key, payload, checksum in connection.execute(query):
                    if _checksum(key, payload) != checksum:
                        raise DataError(
                            f"reading cache {self.place}: the row {key[:12]}… is damaged{_REMEDY}"
                        )
                    found[key] = payload
        return found

    def put(self, rows: Sequence[Row]) -> None:
        """Keep rows, all or none; a key that is stored already stays as it is.

        Raises:
            DataError: the database cannot be written.
        """
        if not rows:
            return
        now = int(time.time())
        values = [
            {**row._asdict(), "created": now, "checksum": _checksum(row.key, row.payload)} for row in rows
        ]
        insert = sqlite.insert(_readings) if self._file else postgresql.insert(_readings)
        # One order of keys in all processes, so that two writers of the same rows cannot block each other.
        values.sort(key=lambda value: str(value["key"]))
        with self._speaking(), self._engine.begin() as connection:
            connection.execute(insert.on_conflict_do_nothing(index_elements=["key"]), values)

    def stats(self) -> Stats:
        """Counts, ages and size."""
        c = _readings.c
        with self._speaking(), self._engine.connect() as connection:
            kinds = connection.execute(sa.select(c.kind, sa.func.count()).group_by(c.kind)).all()
            judges = connection.execute(sa.select(c.judge, sa.func.count()).group_by(c.judge)).all()
            scopes = connection.scalar(sa.select(sa.func.count(sa.distinct(c.scope))).where(c.scope != ""))
            oldest, newest = connection.execute(
                sa.select(sa.func.min(c.created), sa.func.max(c.created))
            ).one()
            size = self._bytes(connection)
        by_kind = {str(kind): int(count) for kind, count in sorted(kinds)}
        by_judge = {str(judge): int(count) for judge, count in sorted(judges)}
        return Stats(self.place, sum(by_kind.values()), by_kind, by_judge, scopes or 0, oldest, newest, size)

    def prune(self, before: float, judge: str | None = None) -> int:
        """Drop readings from before a time (seconds since 1970), of one judge or of all; returns how many."""
        condition = _readings.c.created < before
        if judge is not None:
            condition &= _readings.c.judge.startswith(judge, autoescape=True)
        with self._speaking(), self._engine.begin() as connection:
            return connection.execute(sa.delete(_readings).where(condition)).rowcount

    def erase(self, scope: str) -> int:
        """Remove every reading of a scope, and its traces in the database's files; returns how many.

        Raises:
            DataError: another process works on the database, so traces are left; the rows are gone.
        """
        with self._speaking():
            with self._engine.begin() as connection:
                count = connection.execute(sa.delete(_readings).where(_readings.c.scope == scope)).rowcount
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                if self._file is None:
                    connection.exec_driver_sql("VACUUM FULL axiomrm_readings")
                    return count
                connection.exec_driver_sql("VACUUM")
                busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar()
        if busy:
            raise DataError(
                f"reading cache {self.place}: {count} readings are deleted, but another process reads the "
                "database, so its log still holds their bytes: run the command again when it has ended"
            )
        return count

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _bytes(self, connection: sa.Connection) -> int:
        if self._file is not None:
            parts = (Path(f"{self._file}{end}") for end in ("", "-wal"))
            return sum(part.stat().st_size for part in parts if part.exists())
        return int(
            connection.exec_driver_sql("SELECT pg_total_relation_size('axiomrm_readings')").scalar() or 0
        )

    def _prepare(self) -> None:
        with self._engine.begin() as connection:
            if self._file is None:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATING})")
            for table in _tables.sorted_tables:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
                for index in sorted(table.indexes, key=lambda index: str(index.name)):
                    connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))
            insert = sqlite.insert(_about) if self._file else postgresql.insert(_about)
            row = {"name": "schema", "value": str(SCHEMA)}
            connection.execute(insert.on_conflict_do_nothing(index_elements=["name"]), [row])
            found = connection.scalar(sa.select(_about.c.value).where(_about.c.name == "schema"))
        if found != str(SCHEMA):
            raise ConfigError(
                f"reading cache {self.place}: schema version {found!r}, this axiomrm writes {str(SCHEMA)!r}: "
                "name another place, or drop the old one"
            )

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Errors of the database in one line, without the statement and its values."""
        try:
            yield
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            reason = str(cause).strip().partition("\n")[0]
            remedy = _LOCKED if "locked" in reason else _REMEDY if self._file else ""
            raise DataError(f"reading cache {self.place}: {reason}{remedy}") from error


_REMEDY = ": not a cache of ours, or damaged; name another file or delete it (readings can be made again)"
_LOCKED = f" for more than {BUSY_S} s by another process; try again"


def default_place() -> Path:
    """``readings.sqlite`` in ``$XDG_CACHE_HOME/axiomrm``, which is ``~/.cache/axiomrm`` unless set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "axiomrm" / "readings.sqlite"


def _resolve(place: str | Path) -> tuple[sa.URL, Path | None]:
    text = str(place)
    if "://" not in text:
        file = Path(text).expanduser().absolute()
        return sa.URL.create("sqlite", database=str(file)), file
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        raise ConfigError(
            "reading cache: the URL cannot be read; expected postgresql://user@host/database"
        ) from None
    if url.get_backend_name() == "sqlite" and url.database:
        return _resolve(url.database)
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(
            f"reading cache: {url.drivername!r} is no database of ours; expected a file or postgresql://…"
        )
    return url.set(drivername="postgresql+psycopg"), None


def _connect(url: sa.URL, file: Path | None) -> sa.Engine:
    if file is None:
        try:
            return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)
        except ModuleNotFoundError as error:
            raise ImportError("a cache in PostgreSQL needs psycopg: pip install 'axiomrm[cache]'") from error
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(
            os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        )  # critiques quote conversations: not for others
    except OSError as error:
        raise ConfigError(f"reading cache {file}: cannot be opened: {error.strerror}") from error
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_S}, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _: Any) -> None:
        for setting in ("secure_delete=ON", "synchronous=NORMAL", "journal_mode=WAL"):
            patiently(partial(connection.execute, f"PRAGMA {setting}"))

    return engine


def _checksum(key: str, payload: str) -> str:
    """Ties a payload to its key, so that a damaged or mixed row is never read."""
    return hashlib.blake2b(f"{key} {payload}".encode(), digest_size=16).hexdigest()
