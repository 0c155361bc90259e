"""Prompts that are too long: the oldest tool outputs give way to a visible mark, as many as must.

Nothing is ever cut silently: without this, or where it is not enough, the verdict is
``Failed("context_overflow")``.
"""

from collections.abc import Callable

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.rm.conversation import pieces
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.prefixes import Elided
from axiomrm.rm.prompt import JudgePrompter


def fitted(
    prompter: JudgePrompter,
    render: Callable[[Elided], Prompt | Failed],
    shown: Trajectory,
    limit: int,
) -> tuple[Prompt | Failed, Elided]:
    """A prompt of at most ``limit`` tokens, and the messages that gave way.

    Args:
        prompter: knows what a tool output takes in tokens.
        render: the prompt without the content of some messages.
        shown: what the judge sees; outputs outside it are of no use here.
        limit: tokens that the prompt may take.
    """
    prompt = render(frozenset())
    if isinstance(prompt, Failed) or len(prompt.ids) <= limit:
        return prompt, frozenset()
    left = len(prompt.ids) - limit
    elided: set[int] = set()
    for message, saved in _savings(prompter, shown):
        if left <= 0:
            break
        elided.add(message)
        left -= saved
    shorter = render(frozenset(elided))
    if isinstance(shorter, Failed) or len(shorter.ids) <= limit:
        return shorter, frozenset(elided)
    detail = (
        f"prompt of {len(prompt.ids)} tokens exceeds {limit}, and with {len(elided)} tool outputs elided it "
        f"still takes {len(shorter.ids)}"
    )
    return Failed(kind="context_overflow", detail=detail), frozenset()


def _savings(prompter: JudgePrompter, shown: Trajectory) -> list[tuple[int, int]]:
    """``(message, tokens that its mark saves)`` of tool outputs, oldest first, where it saves any."""
    tools = [i for i, message in enumerate(shown.messages) if message.role == "tool"]
    long, short = (pieces(shown, prompter.control, elided) for elided in (frozenset[int](), frozenset(tools)))
    found = []
    for whole, mark in zip(long, short, strict=True):
        saved = len(prompter.encode(whole.line)) - len(prompter.encode(mark.line))
        if whole.message in tools and saved > 0:
            found.append((whole.message, saved))
    return found
