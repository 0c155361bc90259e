"""The ``axiomrm`` command: finds the module of a verb, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 findings (lint, doctor, audit); 2 the user's input, configuration, installation or disk;
a bug keeps its traceback. Verbs live in their own modules and are imported when they are called, so
``axiomrm --help`` imports no model code.
"""

import errno
import importlib
import importlib.util
import sys
from typing import Annotated, NamedTuple

import typer

from axiomrm import __version__
from axiomrm.errors import ConfigError, Error

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "trl": "train",
    "peft": "train",
    "datasets": "train",
    "accelerate": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "sklearn": "train",
    "gguf": "smollm2",
    "psycopg": "cache",
    "z3": "smt",
    "matplotlib": "notebooks",
}
"""Module that may be missing to the extra that brings it."""
OF_THE_DISK = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EISDIR,
    }
)
"""What a place may refuse, whoever asks; any other ``OSError`` may be a bug."""


class Verb(NamedTuple):
    """Where a verb lives."""

    module: str
    help: str
    target: str = "app"
    """A typer app of ``module``, or the function of a single command."""
    named: bool = False
    """Whether the app itself knows the verb by its name."""
    extra: str | None = None
    """The extra without which the verb can do nothing."""


VERBS = {
    "run": Verb(
        "axiomrm.cli_run",
        "Run the pipeline of a configuration; a stopped run goes on.",
        named=True,
        extra="train",
    ),
    "train": Verb(
        "axiomrm.cli_run", "Train one part: rm (a judge stage) or policy.", named=True, extra="train"
    ),
    "report": Verb("axiomrm.cli_run", "Write the report of a run again.", named=True),
    "score": Verb(
        "axiomrm.cli_score", "Score chat logs with a rubric, with or without a model.", target="score"
    ),
    "calibrate": Verb("axiomrm.cli_calibrate", "Fit a calibrator, or pick a gate, from labelled verdicts."),
    "cache": Verb("axiomrm.cli_cache", "Look into a reading cache, prune it, erase from it."),
    "audit": Verb(
        "axiomrm.cli_audit",
        "Say whether a reward predicts success and looks gamed, from rollouts.",
        target="audit_file",
    ),
    "forget": Verb(
        "axiomrm.cli_forget",
        "Take a user who withdrew consent out of a run.",
        target="forget",
        extra="train",
    ),
    "rubric": Verb("axiomrm.cli_rubric", "Lint, show and start rubrics."),
}

app = typer.Typer(
    name="axiomrm",
    help="Generative reward models with axiom-theorem rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"axiomrm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every verb; ``main`` takes ``--debug`` out wherever it stands."""


def _mount(name: str, verb: Verb) -> None:
    """Give the app a command that hands all its arguments, ``--help`` too, to the verb's own app."""

    def call(ctx: typer.Context) -> None:
        if "--help" not in ctx.args:
            _require(f"axiomrm {name}", verb.extra)
        own = _load(verb)
        arguments = [name, *ctx.args] if verb.named else list(ctx.args)
        own(args=arguments, prog_name="axiomrm" if verb.named else f"axiomrm {name}")

    everything = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(name, help=verb.help, context_settings=everything, add_help_option=False)(call)


def _load(verb: Verb) -> typer.Typer:
    target = getattr(importlib.import_module(verb.module), verb.target)
    if isinstance(target, typer.Typer):
        return target
    own = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    own.command()(target)
    return own


def _require(command: str, extra: str | None) -> None:
    """Say at once that an extra is missing, not after the configuration was read."""
    modules = [module for module, brings in EXTRAS.items() if brings == extra]
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(f"{command} needs {', '.join(missing)}: pip install 'axiomrm[{extra}]'")


for _name, _verb in VERBS.items():
    _mount(_name, _verb)


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: arguments without the program's name; ``None``: those of this process.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in arguments
    try:
        app(args=[word for word in arguments if word != "--debug"], prog_name="axiomrm")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Error as error:
        if debug:
            raise
        return _refuse(str(error))
    except ImportError as error:
        remedy = _remedy(error)
        if debug or remedy is None:
            raise
        return _refuse(remedy)
    except OSError as error:
        if debug or error.errno not in OF_THE_DISK or error.filename is None:
            raise
        return _refuse(f"{error.filename}: {error.strerror}")
    return 0


def _refuse(message: str) -> int:
    typer.echo(f"axiomrm: {' '.join(message.split())}", err=True)
    return 2


def _remedy(error: ImportError) -> str | None:
    """What to install; ``None``: the import failed for another reason."""
    if "pip install" in str(error):
        return str(error)
    extra = EXTRAS.get((error.name or "").split(".")[0])
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    return f"this needs {error.name}, which is not installed: pip install 'axiomrm[{extra}]'"
