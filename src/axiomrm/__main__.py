"""``python -m axiomrm``."""

from axiomrm.cli import main

raise SystemExit(main())
