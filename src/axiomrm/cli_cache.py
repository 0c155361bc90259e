"""``axiomrm cache``: what a reading cache holds, and how to be rid of it."""

import json
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from axiomrm.errors import ConfigError
from axiomrm.rm.cache_sql import ReadingStore, default_place

DAY_S = 86_400

app = typer.Typer(
    help="Look into a reading cache, prune it, erase from it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Place = Annotated[
    str | None, typer.Option("--cache", help="SQLite file or postgresql:// URL; default: the user's own")
]


@app.command()
def stats(
    cache: Place = None, as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False
) -> None:
    """Say how many readings there are, of which judges and how old."""
    found = _open(cache).stats()
    if as_json:
        typer.echo(json.dumps(found._asdict()))
        return
    typer.echo(f"{found.place}: {found.readings} readings, {found.bytes / 1e6:.1f} MB")
    for kind, count in found.kinds.items():
        typer.echo(f"  {kind}: {count}")
    for judge, count in found.judges.items():
        typer.echo(f"  judge {judge[:12]}: {count}")
    typer.echo(f"  consent scopes: {found.scopes}")
    if found.oldest is not None and found.newest is not None:
        typer.echo(f"  written from {_day(found.oldest)} to {_day(found.newest)}")


@app.command()
def prune(
    older_than: Annotated[float, typer.Option(min=0, help="days")],
    cache: Place = None,
    judge: Annotated[str | None, typer.Option(help="only of this judge (as stats shows it)")] = None,
) -> None:
    """Drop readings that are older than some days."""
    dropped = _open(cache).prune(time.time() - older_than * DAY_S, judge)
    typer.echo(f"{dropped} readings dropped")


@app.command()
def erase(
    scope: Annotated[str, typer.Option(help="the consent scope, whole")],
    cache: Place = None,
) -> None:
    """Remove all readings of a consent scope, and their bytes from the database's files.

    Backups and what a disk keeps of freed blocks are out of its reach.
    """
    if not scope:
        raise ConfigError("--scope is empty; it names whose readings go. For all of them delete the database")
    typer.echo(f"{_open(cache).erase(scope)} readings erased")


def _open(cache: str | None) -> ReadingStore:
    place = cache or str(default_place())
    store = ReadingStore.existing(place)
    if store is None:
        raise ConfigError(f"reading cache {place}: there is none")
    return store


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
