"""Write ``rubrics/schema/atr-1.json`` and the reference in docs/rubrics.md, both made from the schema."""

from pathlib import Path

from axiomrm.rubrics.json_schema import SCHEMA_FILE, schema_text
from axiomrm.rubrics.reference import with_reference

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "rubrics.md"


def main() -> None:
    """Write both files."""
    SCHEMA_FILE.parent.mkdir(exist_ok=True)
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    DOCUMENT.write_text(with_reference(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
