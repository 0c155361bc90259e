"""``axiomrm rubric show``: what applies to a task, in a table."""

from axiomrm.rubrics.bind import ActiveRubric


def show_text(active: ActiveRubric) -> str:
    """Criteria with weights, axioms with gates, and the range of the reward."""
    rubric = active.rubric
    lines = [f"{rubric.id} {rubric.version}  {rubric.hash[:12]}"]
    lines += [f"  {name} = {value}" for name, value in active.features.items()]
    lines.append("axioms")
    for axiom in active.axioms:
        caps = ", ".join(f"{k} {v:g}" for k, v in axiom.caps.items()) or "gate 0"
        lines.append(f"  {axiom.id:26} {axiom.type:5} {caps:24} {_when(axiom.applies)}{axiom.evidence.level}")
    total = sum(i.weight for i in active.items)
    lines.append(f"criteria (weight {total:g}, scale {active.policy.scale}, λ {active.share:g})")
    for item in active.items:
        sign = "-" if item.polarity == "penalty" else "+"
        note = f" specialises {item.parent}" if item.personal else ""
        kind = item.judge.fn if item.judge.kind == "programmatic" else item.judge.kind
        lines.append(
            f"  {item.id:26} {sign}{item.weight:<7.4g} {kind:20} "
            f"{_when(item.applies)}{item.evidence.level}{note}"
        )
        lines.append(f"      {item.statement}")
    lines += [f"  {loser} is dropped: {winner} beats it" for loser, winner in active.dropped]
    return "\n".join(lines)


def _when(applies: bool | None) -> str:
    return "some turns, " if applies is None else ""
