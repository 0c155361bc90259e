"""``Rubric``: one file with its imports resolved, and the verbs on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from axiomrm.errors import RubricError
from axiomrm.rubrics.defaults import expand_template, expand_theorem
from axiomrm.rubrics.expr_check import Variable
from axiomrm.rubrics.findings import Finding, raise_findings
from axiomrm.rubrics.model import (
    Axiom,
    Facet,
    Feature,
    Policy,
    RubricFile,
    Template,
    Theorem,
    TurnFeature,
)
from axiomrm.rubrics.read import Document, read_text
from axiomrm.rubrics.symbols import variables_of
from axiomrm.rubrics.yaml_write import to_yaml

if TYPE_CHECKING:
    from axiomrm.rubrics.bind import ActiveRubric, Personal
    from axiomrm.rubrics.lint_private import TextDetector


@dataclass(frozen=True)
class Rubric:
    """A rubric as the judge sees it: active items, own and imported, defaults expanded."""

    file: RubricFile
    """As written, all statuses."""
    source: Document
    """Text and positions of this file."""
    imported: tuple["Rubric", ...] = ()
    where: str = ""
    """Path of the file; empty: from a text."""
    search: tuple[FilePath, ...] = field(default=(), compare=False)

    @classmethod
    def load(
        cls, name_or_path: str | FilePath, *, search: Sequence[str | FilePath] = (), locked: bool = True
    ) -> "Rubric":
        """Load by library name or by path.

        Args:
            name_or_path: ``"support_agent"``, or a path to a YAML or JSON file.
            search: further folders for imports (and names), before the library.
            locked: whether the imports must be those of ``rubrics.lock`` beside the file, if it is there.

        Raises:
            RubricError: no such rubric (then ``findings`` is empty), or it has findings of level error.
        """
        from axiomrm.rubrics.load import load_with_findings

        rubric, findings, sources = load_with_findings(name_or_path, search=search, locked=locked)
        raise_findings(findings, sources)
        if rubric is None:
            raise RubricError(f"{name_or_path}: not readable as a rubric")
        return rubric

    @classmethod
    def loads(
        cls, text: str, file: str = "rubric.yaml", *, search: Sequence[str | FilePath] = ()
    ) -> "Rubric":
        """Load from a text.

        Args:
            text: YAML or JSON.
            file: name for messages.
            search: folders for imports, before the library.

        Raises:
            RubricError: the text has findings of level error.
        """
        from axiomrm.rubrics.load import assemble

        folders = tuple(FilePath(p) for p in search)
        rubric, findings, sources = assemble(read_text(text, file), None, folders)
        raise_findings(findings, sources)
        if rubric is None:
            raise RubricError(f"{file}: not readable as a rubric")
        return rubric

    @classmethod
    def from_model(cls, model: RubricFile, *, search: Sequence[str | FilePath] = ()) -> "Rubric":
        """From a model made in Python, through its YAML text, so that findings have places.

        Raises:
            RubricError: the model has findings of level error.
        """
        return cls.loads(to_yaml(model.plain()), f"{model.rubric.id}.yaml", search=search)

    @property
    def id(self) -> str:
        """The rubric's id."""
        return self.file.rubric.id

    @property
    def version(self) -> str:
        """Semantic version as written."""
        return self.file.rubric.version

    @property
    def policy(self) -> Policy:
        """This file's policy; those of imports are ignored."""
        return self.file.policy

    @cached_property
    def parts(self) -> tuple["Rubric", ...]:
        """All imported rubrics, depth first, each once, then this one."""
        seen: dict[str, Rubric] = {}
        for inner in self.imported:
            for part in inner.parts:
                seen.setdefault(part.id, part)
        seen.pop(self.id, None)
        return (*seen.values(), self)

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The files that it was read from, imported ones first."""
        return tuple(FilePath(part.where) for part in self.parts if part.where)

    @cached_property
    def guidelines(self) -> str:
        """Text before all criteria: those of the imports, then the own."""
        return "\n\n".join(p.file.rubric.guidelines for p in self.parts if p.file.rubric.guidelines)

    @cached_property
    def features(self) -> Mapping[str, Feature]:
        """Declared task features."""
        return {k: v for p in self.parts for k, v in p.file.features.items()}

    @cached_property
    def turn_features(self) -> Mapping[str, TurnFeature]:
        """Declared facts of the prefix."""
        return {k: v for p in self.parts for k, v in p.file.turn_features.items()}

    @cached_property
    def facets(self) -> Mapping[str, Facet]:
        """Declared properties of the judged text."""
        return {k: v for p in self.parts for k, v in p.file.facets.items()}

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """All names that conditions may use."""
        return {name: v for p in self.parts for name, v in variables_of(p.file, p.source).items()}

    @cached_property
    def axioms(self) -> tuple[Axiom, ...]:
        """Active axioms, premises included."""
        return tuple(a for p in self.parts for a in p.file.axioms if a.status == "active")

    @cached_property
    def theorems(self) -> tuple[Theorem, ...]:
        """Active theorems with defaults expanded."""
        return tuple(t for p in self.parts for t in p.own_theorems if t.status == "active")

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """Active personal templates with defaults expanded."""
        return tuple(t for p in self.parts for t in p.own_templates if t.status == "active")

    @cached_property
    def own_theorems(self) -> tuple[Theorem, ...]:
        """This file's theorems of all statuses, defaults expanded, in the order of the file."""
        return tuple(expand_theorem(t, self.file.defaults) for t in self.file.theorems)

    @cached_property
    def own_templates(self) -> tuple[Template, ...]:
        """This file's templates of all statuses, defaults expanded, in the order of the file."""
        return tuple(expand_template(t, self.file.defaults) for t in self.file.personal_templates)

    @cached_property
    def item_hashes(self) -> Mapping[str, str]:
        """Content address of each active axiom and theorem."""
        from axiomrm.rubrics.hashing import item_hash

        items: tuple[Axiom | Theorem, ...] = (*self.axioms, *self.theorems)
        return {item.id: item_hash(item, self.facets) for item in items}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical form; equal for files that mean the same."""
        from axiomrm.rubrics.hashing import rubric_hash

        return rubric_hash(self)

    def to_yaml(self) -> str:
        """The file's content as YAML (imports stay imports); loading it gives an equal hash."""
        return to_yaml(self.file.plain())

    def lint(self, detectors: Sequence["TextDetector"] = ()) -> tuple[Finding, ...]:
        """All static checks, warnings included.

        Args:
            detectors: finders of sensitive or personal text behind E150 and E151.
        """
        from axiomrm.rubrics.lint import lint

        return lint(self, detectors)

    def bind(
        self,
        features: Mapping[str, Any],
        personal: "Personal | None" = None,
        *,
        task: str = "",
    ) -> "ActiveRubric":
        """Which criteria apply to a task, with final weights. Takes no reply, by signature.

        Args:
            features: the task's features; undeclared ones are ignored.
            personal: slot values and share of one user.
            task: id for messages.

        Raises:
            DataError: a declared feature without default is missing, or a value does not fit.
            ConfigError: the personal share is outside [0, personal_budget].
        """
        from axiomrm.rubrics.bind import bind

        return bind(self, features, personal, task=task)


def walk(rubric: Rubric) -> Iterator[tuple[Rubric, str, int, Axiom | Theorem | Template]]:
    """Own and imported items of all statuses: part, section, index in its file, expanded item."""
    for part in rubric.parts:
        yield from own_items(part)


def own_items(part: Rubric) -> Iterator[tuple[Rubric, str, int, Axiom | Theorem | Template]]:
    """As ``walk``, this file only."""
    for i, axiom in enumerate(part.file.axioms):
        yield part, "axioms", i, axiom
    for i, theorem in enumerate(part.own_theorems):
        yield part, "theorems", i, theorem
    for i, template in enumerate(part.own_templates):
        yield part, "personal_templates", i, template
