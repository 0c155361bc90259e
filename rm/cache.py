"""Readings that were paid for once: an engine that looks into a database before it asks the model.

What is kept is what the engine answered, label log-probabilities and generations, and never a verdict:
read-out, calibration, thresholds and label values come after it, so changing them costs no call. A reading
depends on what the model is given and on the model, so the key holds: version of the key; engine with
endpoint, weights and precision; tokenizer, chat template, prompt template and grammar; the prompt itself,
which spells out guidelines, conversation, turn, criterion, labels, mode and companions; ids of the labels;
sampling with seed and sample index; scope and context. Nonce, batch make-up, time limits, calibrator and
thresholds are not in it.

Deviations: (1) rubric hash, criterion id and label values are not in the key, because they never reach the
model: editing one criterion of a rubric keeps the readings of the others. (2) A sample is asked for again
together with the samples before it where only a later one is missing, so sample j is always the j-th draw.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.cache_key import SCHEMA, content_hash, key_of, without_nonce, written_under
from axiomrm.rm.cache_sql import ReadingStore, Row
from axiomrm.rm.engines.base import (
    UNREAD,
    Capabilities,
    Engine,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    TokenLogprobs,
)
from axiomrm.rm.engines.row_seeds import copies_before
from axiomrm.rm.grammar import clean, lead_in, visible_lines
from axiomrm.rm.labels import LabelTable
from axiomrm.rm.prompt import JudgePrompter

if TYPE_CHECKING:
    from axiomrm.rm.reward_model import RewardModel

Kind = Literal["labels", "generation"]


def with_cache(
    judge: "RewardModel",
    place: str | Path | ReadingStore,
    *,
    scope: str = "",
    context: Mapping[str, str] | None = None,
) -> "RewardModel":
    """The same judge with its readings kept in a database.

    Args:
        judge: with a model; its verdicts stay what they are.
        place: a file for SQLite, a ``postgresql://`` URL, or an open store.
        scope: opaque name of whose consent the readings rest on (a subject token), for erasure; readings of
            two scopes are never shared.
        context: more that must be equal for a hit, for example purpose and consent epoch.

    Raises:
        ConfigError: there is no model to cache, or the database cannot be opened.
    """
    if judge.engine is None or judge.prompter is None:
        raise ConfigError("a judge without a model has no readings to cache; give it a model or no cache")
    inner = judge.engine.engine if isinstance(judge.engine, CachedEngine) else judge.engine
    store = place if isinstance(place, ReadingStore) else ReadingStore(place)
    cached = copy(judge)
    cached.engine = CachedEngine(inner, judge.prompter, store, scope=scope, context=context)
    return cached


class CachedEngine:
    """An :class:`~axiomrm.rm.engines.base.Engine` before another one; failures pass through, unstored."""

    def __init__(
        self,
        engine: Engine,
        prompter: JudgePrompter,
        store: ReadingStore,
        *,
        scope: str = "",
        context: Mapping[str, str] | None = None,
    ) -> None:
        """See :func:`with_cache`; ``prompter`` is the one that renders the prompts."""
        self.engine, self.prompter, self.store = engine, prompter, store
        self._scope, self._context = scope, dict(context or {})
        self._counts = {"cache_hits": 0, "cache_misses": 0}
        self._spell: Callable[[int], str] = lru_cache(None)(lambda token: prompter.decode([token]))

    @property
    def capabilities(self) -> Capabilities:
        """Those of the engine behind."""
        return self.engine.capabilities

    @property
    def identity(self) -> Mapping[str, str]:
        """That of the engine behind: a cache changes no number."""
        return self.engine.identity

    @property
    def usage(self) -> dict[str, int]:
        """The counts of the engine behind, with readings found and readings asked for."""
        return {**getattr(self.engine, "usage", {}), **self._counts}

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """Stored readings where there are any; the others are asked for together."""
        keys = [
            self._key(
                "labels",
                self._content(prompt),
                {"labels": table.label_ids, "lead_in": without_nonce(table.lead_in, prompt.nonce)},
            )
            for prompt, table in zip(prompts, tables, strict=True)
        ]
        found = {key: _reading(text) for key, text in self.store.get(list(dict.fromkeys(keys))).items()}
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        missing = sorted(i for key, i in first.items() if key not in found)
        fresh = self.engine.label_logprobs([prompts[i] for i in missing], [tables[i] for i in missing])
        results = dict(zip((keys[i] for i in missing), fresh, strict=True))
        kept = {k: r for k, r in results.items() if isinstance(r, LabelReading) and _numbers(r)}
        self.store.put([self._row(key, "labels", asdict(reading)) for key, reading in kept.items()])
        self._count(len(keys), sum(key not in found for key in keys))
        return [found.get(key) or results[key] for key in keys]

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """Stored generations where there are any; the n-th copy of a prompt is its n-th sample."""
        contents = [self._content(prompt) for prompt in prompts]
        samples = copies_before(contents)
        keys = [
            self._key("generation", content, {"sampling": asdict(sampling), "sample": j})
            for content, j in zip(contents, samples, strict=True)
        ]
        found = self.store.get(keys)
        last = {c: j for c, j, key in zip(contents, samples, keys, strict=True) if key not in found}
        asked = [i for i, c in enumerate(contents) if samples[i] <= last.get(c, -1)]
        results: list[Generation | Failed] = [UNREAD] * len(prompts)
        for i, written in zip(
            asked, self.engine.generate([prompts[i] for i in asked], sampling), strict=True
        ):
            results[i] = written
        rows = []
        for i, (key, prompt) in enumerate(zip(keys, prompts, strict=True)):
            written = results[i]
            if key in found:
                results[i] = self._restored(found[key], prompt)
            elif isinstance(written, Generation) and self._usable(written, prompt):
                rows.append(self._row(key, "generation", {**asdict(written), "nonce": prompt.nonce}))
        self.store.put(rows)
        self._count(len(keys), sum(key not in found for key in keys))
        return results

    @cached_property
    def _judge(self) -> str:
        return key_of({"engine": dict(self.engine.identity), "prompt": self.prompter.fingerprint})

    def _content(self, prompt: Prompt) -> str:
        return content_hash(prompt, self._spell if self.capabilities.token_ids else None)

    def _key(self, kind: Kind, content: str, parts: Mapping[str, Any]) -> str:
        whose = {"scope": self._scope, "context": self._context}
        return key_of(
            {"schema": SCHEMA, "kind": kind, "judge": self._judge, "content": content, **parts, **whose}
        )

    def _row(self, key: str, kind: Kind, value: Mapping[str, Any]) -> Row:
        return Row(key, kind, self._judge, self._scope, json.dumps(value))

    def _count(self, total: int, missed: int) -> None:
        self._counts["cache_hits"] += total - missed
        self._counts["cache_misses"] += missed

    def _restored(self, text: str, prompt: Prompt) -> Generation:
        value = json.loads(text)
        tokens = tuple(TokenLogprobs(text, top) for text, top in value["tokens"])
        written = Generation(value["text"], tuple(value["token_ids"]), value["stop"], tokens)
        return written_under(written, value["nonce"], prompt.nonce, self._spell, self.prompter.encode)

    def _usable(self, written: Generation, prompt: Prompt) -> bool:
        """Whether it is an answer; a local model would say the same again, a server may do better."""
        if "endpoint" not in self.engine.identity:
            return True
        can = self.capabilities
        if written.stop == "length" or not (written.tokens or can.token_ids or can.logprobs == "none"):
            return False
        opening = lead_in(prompt.nonce).removesuffix("]=")
        if not any(opening in message["content"] for message in prompt.messages):
            return bool(written.text.strip())  # another judge's form
        return any(line.text.startswith(opening) for line in visible_lines(clean(written.text).text))


def _reading(text: str) -> LabelReading:
    value = json.loads(text)
    return LabelReading(value["logprobs"], value["bound"])


def _numbers(reading: LabelReading) -> bool:
    return not any(math.isnan(x) for x in reading.logprobs.values())
