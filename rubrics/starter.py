"""``axiomrm rubric new``: a small rubric that loads, lints clean, and shows where things go."""

STARTER = """\
schema: atr/1
rubric:
  id: {id}
  version: 0.1.0
  title: {title}
  languages: [en]
  license: Apache-2.0
  imports: ["core_axioms@^1.0"]   # ax.truth, ax.privacy (hard), ax.no_flattery (soft), ax.helpful, ax.respect
features:                         # facts of the task, known before any reply exists
  urgent: {{type: bool, default: false}}
facets:                           # what can be measured in a reply
  len_words: {{type: int, range: [0, 2000], probe: word_count}}
theorems:
  - id: th.answers
    derived_from: [ax.helpful]
    derivation: the user came with a question, and an answer to another one does not serve it
    statement: The reply answers the question that was asked.
    weight: 2
  - id: th.next_step
    derived_from: [ax.helpful]
    derivation: someone in a hurry needs to know what to do now
    statement: Names one step that the user can take at once.
    applies_when: urgent
    weight: 1
  - id: th.short
    derived_from: [ax.respect]
    derivation: time is respected when no sentence could be left out
    statement: Says what is needed in at most 200 words.
    requires: len_words <= 200
    judge: {{kind: constraint}}
    weight: 1
  - id: th.padding
    derived_from: [ax.respect]
    derivation: text without content makes the user search for the answer
    statement: Restates the question, or opens and closes without content.
    polarity: penalty
    inverse: Every sentence carries content.
    weight: 1
policy: {{scale: net, min_coverage: 0.6}}
changelog:
  - {{version: 0.1.0, note: first draft}}
"""


def starter(name: str) -> str:
    """The text for a rubric called ``name``."""
    return STARTER.format(id=name, title=name.replace("_", " ").capitalize())
