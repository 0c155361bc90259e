"""Converters from and to other rubric formats, each with a report of what was lost."""

from axiomrm.rubrics.convert.build import Imported
from axiomrm.rubrics.convert.formats import FORMATS, export_rubric, import_rubrics
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.written import Read

__all__ = ["FORMATS", "Imported", "Loss", "LossReport", "Read", "export_rubric", "import_rubrics"]
