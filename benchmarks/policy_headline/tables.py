"""The report's tables, in Markdown; every number also goes into ``numbers``."""

from collections.abc import Callable, Sequence
from typing import Any

from axiomrm.eval.estimate import Estimate
from axiomrm.policy_opt.envs.service_desk.tasks import HELDOUT_KIND
from policy_headline.curves import Reached, auc, crossing, final
from policy_headline.runs import Planner, Row
from policy_headline.scale import GRPO, NO_REPLAY, OURS, Scale
from policy_headline.stats import better, difference, iqm_of, mean_of, median_text, order, ratio, stratified

Arms = dict[str, list[Row]]
Numbers = dict[str, Any]
SPENT = {"turns": "env turns", "updates": "optimizer steps", "seconds": "seconds"}
HIGH = 0.8


def times(scale: Scale, rows: Sequence[Row], target: float | None = None) -> list[Reached]:
    return [crossing(row, scale.target if target is None else target, scale.in_succession) for row in rows]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return [*lines, ""]


def count(e: Estimate) -> str:
    """``448 [320, 576]``."""
    if e.value is None:
        return "not measured"
    return f"{e.value:.0f}" + ("" if e.low is None or e.high is None else f" [{e.low:.0f}, {e.high:.0f}]")


def number(e: Estimate) -> str:
    """``3.14 [1.20, 5.00]``."""
    if e.value is None:
        return "not measured"
    return f"{e.value:.2f}" + ("" if e.low is None or e.high is None else f" [{e.low:.2f}, {e.high:.2f}]")


def runs_of(rows: Sequence[Row], planned: int) -> str:
    """``5``; ``3 of 5`` while runs are missing."""
    return str(len(rows)) if len(rows) >= planned else f"{len(rows)} of {planned}"


def marked(arm: str, rows: Sequence[Row], planned: int) -> str:
    """The arm's name, with how many runs there are if not all."""
    return arm if len(rows) >= planned else f"{arm} ({runs_of(rows, planned)} runs)"


def never(found: Sequence[Reached]) -> str:
    return f"{sum(t.censored for t in found)} of {len(found)}"


def tuning_table(scale: Scale, planner: Planner, rows: Sequence[Row]) -> list[str]:
    """The whole curve over learning rates, on dev tasks."""
    lines = []
    for arm in scale.arms:
        choice = planner.choice(arm, rows)
        for rate in choice.grid:
            if rate in choice.scores:
                mean, minus_area = choice.scores[rate]
                mark = "chosen" + ("" if choice.interior else ", at the edge") if rate == choice.rate else ""
                lines.append([arm, f"{rate:g}", f"{mean:.0f}", f"{-minus_area:.3f}", mark])
    if not lines:
        return ["## Tuning", "", "Not run.", ""]
    head = ["arm", "learning rate", f"rollouts to {scale.target:.0%}, restricted mean", "AUC", ""]
    left = [arm for arm in scale.arms if arm not in planner.tuned(rows)]
    told = [f"Not tuned yet, so not measured: {', '.join(left)}.", ""] if left else []
    seeds = ", ".join(map(str, scale.tuning_seeds))
    return [f"## Tuning, dev tasks, seeds {seeds}", "", *table(head, lines), *told]


def arm_table(scale: Scale, arms: Arms, numbers: Numbers) -> list[str]:
    """One line an arm: rollouts to the target, area, end, and what the target cost."""
    if not arms:
        return ["## Held-out tasks, fresh seeds", "", "Not run.", ""]
    lines, costs = [], []
    for arm, rows in arms.items():
        reached = times(scale, rows)
        to_target = stratified({arm: [t.rollouts for t in reached]}, mean_of(arm))
        area = stratified({arm: [auc(r) for r in rows]}, iqm_of(arm))
        end = stratified({arm: [final(r) for r in rows]}, iqm_of(arm))
        high = times(scale, rows, HIGH)
        lines.append([
            arm, f"{rows[0]['learning_rate']:g}", runs_of(rows, len(scale.seeds(arm))), count(to_target), median_text(reached), never(reached),
            number(area), number(end), f"{median_text(high)} ({never(high)})",
        ])  # fmt: skip
        costs.append([arm, *_costs(reached), _kl(reached), *kinds(rows), _alarms(rows)])
        numbers[f"arm {arm}"] = {
            "learning_rate": rows[0]["learning_rate"],
            "seeds": [r["seed"] for r in rows],
            "rollouts": to_target.model_dump(),
            "times": [t._asdict() for t in reached],
            "auc": area.model_dump(),
            "final": end.model_dump(),
        }
    target = f"{scale.target:.0%}"
    head = ["arm", "learning rate", "runs", f"rollouts to {target}, restricted mean", "median", f"never {target}",
            "AUC, IQM", "final success, IQM", "median rollouts to 80% (never)"]  # fmt: skip
    cost_head = [
        "arm",
        *(f"{name} to {target}, restricted mean" for name in SPENT.values()),
        f"KL at {target}, nats a token, one iteration behind",
        "end, kinds of the training split",
        "end, the other kind",
        "alarms",
    ]
    title = f"## Held-out tasks, fresh seeds, budget {next(iter(arms.values()))[0]['budget']} rollouts"
    return [title, "", *table(head, lines), *table(cost_head, costs)]


def _costs(reached: Sequence[Reached]) -> list[str]:
    """Restricted means of what was spent until the crossing: a censored run counts with all that it spent."""
    censored = sum(t.censored for t in reached)
    mark = f" ({censored} censored)" if censored else ""
    return [f"{sum(t.point[key] for t in reached) / len(reached):.0f}{mark}" for key in SPENT]


def _kl(reached: Sequence[Reached]) -> str:
    """Of the runs that crossed, at the crossing; the policy before the last iteration's updates."""
    known = [t.point["kl"] for t in reached if not t.censored and t.point["kl"] is not None]
    return f"{sum(known) / len(known):.3f} (n={len(known)})" if known else "not measured"


def kinds(rows: Sequence[Row]) -> tuple[str, str]:
    """Success at the last evaluation on kinds that training has, and on the one that it does not have."""
    pools = {False: [0, 0], True: [0, 0]}
    for row in rows:
        for kind, (solved, known) in row["curve"][-1]["solved"].items():
            pool = pools[kind == HELDOUT_KIND]
            pool[0], pool[1] = pool[0] + solved, pool[1] + known
    seen, other = (f"{s / n:.2f} (n={n})" if n else "not measured" for s, n in pools.values())
    return seen, other


def _alarms(rows: Sequence[Row]) -> str:
    names = sorted({name for row in rows for name in row["alarms"]})
    return ", ".join(f"{n} {sum(n in r['alarms'] for r in rows)}" for n in names) or "none"


def headline(scale: Scale, arms: Arms, numbers: Numbers) -> list[str]:
    """Ratios of rollouts with intervals, and what they say.

    The better GRPO is taken among those with all their runs; an arm that lacks some is marked by its name.
    """
    if OURS not in arms:
        return []
    names = {arm: marked(arm, rows, len(scale.seeds(arm))) for arm, rows in arms.items()}
    rivals = [a for a in GRPO if a in arms and names[a] == a]
    reached = {arm: times(scale, rows) for arm, rows in arms.items()}
    spent = {arm: [t.rollouts for t in found] for arm, found in reached.items()}
    lines = []
    for own in (a for a in (OURS, NO_REPLAY) if rivals and a in arms):
        found = stratified({a: spent[a] for a in (*rivals, own)}, ratio(rivals, own))
        numbers[f"better outcome-GRPO over {own}"] = found.model_dump()
        lines.append(["better outcome-GRPO", names[own], number(found), ""])
    for arm in (a for a in arms if a != OURS):
        found = stratified({arm: spent[arm], OURS: spent[OURS]}, ratio([arm], OURS))
        ranks = {arm: order(reached[arm]), OURS: order(reached[OURS])}
        chance = stratified(ranks, better(OURS, arm))
        numbers[f"{arm} over {OURS}"] = found.model_dump()
        numbers[f"{OURS} better than {arm}"] = chance.model_dump()
        lines.append([names[arm], names[OURS], number(found), number(chance)])
    head = ["arm", "over", "ratio of rollouts, > 1: the second needs fewer", f"P({OURS} better)"]
    return ["## Ratios", "", *table(head, lines), *_answers(scale, arms, numbers)]


def _answers(scale: Scale, arms: Arms, numbers: Numbers) -> list[str]:
    lines = []
    main, open_ = numbers.get(f"better outcome-GRPO over {OURS}"), _unfinished(scale, arms, (*GRPO, OURS))
    if open_:
        lines.append(f"Headline ratio not decided, runs are missing: {', '.join(open_)}.")
    elif main and main["low"] is not None:
        excludes = main["low"] > 1 or main["high"] < 1
        lines.append(
            f"Headline ratio {main['value']:.2f}: the interval {'excludes' if excludes else 'does not exclude'} 1, "
            f"the aim of 3 is {'reached' if main['value'] >= 3 else 'not reached'}."
        )
        lines += _censored(scale, arms)
    if NO_REPLAY in arms and OURS in arms:
        areas = {a: [auc(r) for r in arms[a]] for a in (NO_REPLAY, OURS)}
        gain = stratified(areas, difference(OURS, NO_REPLAY))
        numbers["AUC that replay adds"] = gain.model_dump()
        text = number(Estimate.model_validate(numbers[f"{NO_REPLAY} over {OURS}"]))
        few = _unfinished(scale, arms, (NO_REPLAY, OURS))
        mark = f" So far: {', '.join(few)}." if few else ""
        lines.append(f"Replay's own contribution: {text} times fewer rollouts, AUC {number(gain)}.{mark}")
    return [*lines, ""] if lines else []


def _unfinished(scale: Scale, arms: Arms, names: Sequence[str]) -> list[str]:
    """Those of the scale's arms that lack runs, with how many they have."""
    there = [a for a in names if a in scale.arms or a in arms]
    told = {a: marked(a, arms.get(a, []), len(scale.seeds(a))) for a in there}
    return [text for arm, text in told.items() if text != arm]


def _censored(scale: Scale, arms: Arms) -> list[str]:
    """Which way runs that never crossed push the headline ratio."""
    lines = []
    for arm, effect in [(a, "which makes the ratio too small") for a in GRPO] + [
        (OURS, "which makes it too large")
    ]:
        n = sum(t.censored for t in times(scale, arms.get(arm, [])))
        if n:
            lines.append(f"{n} runs of {arm} never crossed and count with the budget, {effect}.")
    return lines


def sweep_table(
    scale: Scale, name: str, found: dict[tuple[str, str], list[Row]], numbers: Numbers
) -> list[str]:
    """One line a value and arm."""
    if not found:
        return [f"## Sweep: {name}", "", "Not run.", ""]
    lines = []
    for (arm, variant), rows in found.items():
        reached = times(scale, rows)
        spent = stratified({arm: [t.rollouts for t in reached]}, mean_of(arm))
        cells: list[tuple[Callable[[Row], float], str]] = [(auc, "auc"), (final, "final")]
        shown = {key: stratified({arm: [f(r) for r in rows]}, iqm_of(arm)) for f, key in cells}
        lines.append(
            [
                variant,
                arm,
                runs_of(rows, len(scale.sweep_seeds)),
                count(spent),
                never(reached),
                *map(number, shown.values()),
                _alarms(rows),
            ]
        )
        numbers[f"sweep {name}, {variant}, {arm}"] = {"rollouts": spent.model_dump()} | {
            key: e.model_dump() for key, e in shown.items()
        }
    head = [
        "value",
        "arm",
        "runs",
        f"rollouts to {scale.target:.0%}",
        "never",
        "AUC",
        "final success",
        "alarms",
    ]
    return [f"## Sweep: {name}", "", *table(head, lines)]


def losing(scale: Scale, where: str, arms: Arms, numbers: Numbers, planned: int | None = None) -> list[str]:
    """Other arms that are ahead of ours at one setting: fewer rollouts, or (no run crossed) a greater area.

    Args:
        planned: runs of an arm when all are done; default: as many as the headline's.
    """
    if OURS not in arms:
        return []
    names = {arm: marked(arm, rows, planned or len(scale.seeds(arm))) for arm, rows in arms.items()}
    ours = "" if names[OURS] == OURS else f"; {names[OURS]}"
    lines = []
    for arm in (a for a in arms if a != OURS):
        both = {a: times(scale, arms[a]) for a in (arm, OURS)}
        spent = stratified({a: [t.rollouts for t in found] for a, found in both.items()}, ratio([arm], OURS))
        areas = stratified({a: [auc(r) for r in arms[a]] for a in both}, difference(OURS, arm))
        none_crossed = all(t.censored for found in both.values() for t in found)
        if none_crossed and areas.value is not None and areas.value < 0:
            how = "has the greater area, neither crosses"
        elif not none_crossed and spent.value is not None and spent.value < 1:
            how = f"needs fewer rollouts, ratio {number(spent)}"
        else:
            continue
        numbers[f"losing: {where}, {arm}"] = {"ratio": spent.model_dump(), "auc": areas.model_dump()}
        lines.append(f"- {where}: {names[arm]} {how}, AUC difference {number(areas)}{ours}.")
    return lines


def commit_table(rows: Sequence[Row], numbers: Numbers) -> list[str]:
    """How many rows of each stage ran at which commit: a digest covers the settings and not the code."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        commits = found.setdefault(row["stage"], {})
        name = row.get("commit") or "unknown"
        commits[name] = commits.get(name, 0) + 1
    if not found:
        return []
    numbers["commits"] = found
    lines = [[stage, name[:12], str(n)] for stage, commits in found.items() for name, n in commits.items()]
    return ["## Commits of the rows above", "", *table(["stage", "commit", "rows"], lines)]
