"""Public errors. A message names the place, what was found, what is accepted, and a remedy."""


class Error(Exception):
    """Base of every error that axiomrm raises on purpose; the CLI prints it in one line and exits 2."""


class DataError(Error, ValueError):
    """A file or record does not hold what it should."""


class ConfigError(Error, ValueError):
    """A configuration value or combination cannot be used."""


class JudgeError(Error, RuntimeError):
    """A whole judging run cannot go on; a single failed verdict is a ``Failed`` value instead."""


class ConsentError(Error, PermissionError):
    """A purpose was asked for without a grant that covers it."""


class RubricError(DataError):
    """A rubric cannot be read; carries every finding of the file, not only the first."""

    def __init__(self, message: str, findings: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings
        """The ``axiomrm.rubrics.Finding`` objects behind the message."""
