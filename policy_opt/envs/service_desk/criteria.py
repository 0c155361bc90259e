"""Per-turn oracle labels for the criteria of the service desk rubric.

``surface`` criteria can be answered from the judged reply alone; ``relational`` ones compare two
places of the dialogue. A criterion that does not apply to an action has no label.
"""

from dataclasses import dataclass

from axiomrm.data.environment import Action
from axiomrm.policy_opt.envs.service_desk import phrases
from axiomrm.policy_opt.envs.service_desk.oracle import (
    ACCOUNT_TOOLS,
    Assessment,
    Progress,
    call_key,
    claims,
    unsupported,
)
from axiomrm.policy_opt.envs.service_desk.user import asked_slots
from axiomrm.policy_opt.envs.service_desk.world import DISTRACTORS, TOOLS

STEP = "sd.step"
SURFACE = ("sd.polite", "sd.no_promise", "sd.no_flattery", "sd.asks", "sd.useful_tool")
RELATIONAL = (
    "sd.right_value",
    "sd.true_report",
    "sd.no_repeat",
    "sd.asks_new",
    "sd.verified_first",
    "sd.right_name",
)
ASK: dict[str, str] = {
    STEP: "Is this step right and needed?",
    "sd.polite": "Is the reply polite?",
    "sd.no_promise": "Is the reply free of promised gifts?",
    "sd.no_flattery": "Is the reply free of flattery?",
    "sd.asks": "Does the reply ask a question?",
    "sd.useful_tool": "Is the called tool one that the desk needs?",
    "sd.right_value": "Does the call use the values given before?",
    "sd.true_report": "Does the reply state only what was said or found?",
    "sd.no_repeat": "Is this call new?",
    "sd.asks_new": "Does the reply ask only for what is not known yet?",
    "sd.verified_first": "Was the pin checked before this call?",
    "sd.right_name": "Is the user called by the right name?",
}


@dataclass(frozen=True)
class Label:
    """One oracle answer and the note a perfect critic would write."""

    value: bool
    note: str
    quote: str = ""
    """Words of the judged turn that show a fault."""


def label_turn(action: Action, p: Progress, step: Assessment) -> dict[str, Label]:
    """Criterion id to label for every criterion that applies to this action."""
    labels: dict[str, Label] = {}
    if step.value:
        labels[STEP] = Label(step.value > 0, NOTES[step.kind])
    if action.tool_calls and not action.error:
        labels |= _label_call(action, p)
    elif action.text:
        labels |= _label_text(action.text, p)
    return labels


NOTES = {
    "ok": "the step is needed and fits",
    "bad_call": "the call is not well formed",
    "redundant": "the same call was made before",
    "unverified": "the pin was not checked",
    "wrong_argument": "a value differs from what was given",
    "wrong_tool": "this tool is not needed now",
    "breach": "the policy does not allow it",
    "asks_again": "the user has said this already",
    "unneeded": "this is not needed",
    "premature": "it closes too early",
    "false_report": "the result says something else",
}


def _label_call(action: Action, p: Progress) -> dict[str, Label]:
    call = action.tool_calls[0]
    args = {k: str(v) for k, v in call.arguments.items()}
    labels = {}
    useful = call.name in TOOLS and call.name not in DISTRACTORS
    labels["sd.useful_tool"] = Label(
        useful, f"the tool {call.name} is {'a desk tool' if useful else 'no desk tool'}"
    )
    new = call_key(call.name, args) not in p.results
    labels["sd.no_repeat"] = Label(new, "no call before is the same" if new else NOTES["redundant"])
    if call.name in ACCOUNT_TOOLS:
        labels["sd.verified_first"] = Label(
            p.verified, "verify came first" if p.verified else NOTES["unverified"]
        )
    checked = {k: v for k, v in args.items() if k not in ("topic", "kind")}
    if useful and checked:
        wrong = [v for v in checked.values() if v not in _given(p)]
        labels["sd.right_value"] = Label(
            not wrong, f"{wrong[0]} was not given" if wrong else "the values were given"
        )
    return labels


def _given(p: Progress) -> set[str]:
    given = set(p.known.values()) | {p.request.values[s] for s in ("order",) if s in p.known}
    if p.request.kind == "stock_check":
        given.add(p.request.values["item"])
    for result in p.results.values():
        given |= claims(result)["number"]
    return given


def _label_text(text: str, p: Progress) -> dict[str, Label]:
    labels = {}
    for cid, kind, good in (
        ("sd.polite", "rude", "the tone is polite"),
        ("sd.no_promise", "promise", "nothing is promised"),
        ("sd.no_flattery", "flattery", "no flattery"),
    ):
        found = phrases.fault_in(text, kind)
        labels[cid] = Label(
            found is None, good if found is None else f"there is a {kind} sentence", found or ""
        )
    labels["sd.asks"] = Label("?" in text, "there is a question" if "?" in text else "there is no question")
    asked = asked_slots(text)
    if asked:
        again = [s for s in asked if s in p.known]
        labels["sd.asks_new"] = Label(
            not again, f"the {again[0]} was given" if again else "this is not known yet"
        )
    if "?" not in text and any(v for k, v in claims(text).items() if k != "name"):
        wrong = sorted(unsupported(text, p))
        labels["sd.true_report"] = Label(
            not wrong, f"{wrong[0]} was not found" if wrong else "the results say so"
        )
    named = claims(text)["name"]
    if named and "name" in p.known:
        right = named == {p.known["name"]}
        labels["sd.right_name"] = Label(right, f"the user is {p.known['name']}")
    return labels
