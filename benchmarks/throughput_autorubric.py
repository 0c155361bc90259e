"""autorubric 1.6.1 as a client, one conversation a line on standard input, one result a line on output.

Runs under the interpreter of an environment that has autorubric, so it imports nothing of ours.
Input: {"text", "asks"}. Output: {"asked", "valid", "kinds"}; a verdict is valid unless autorubric says that
it made it up because the call or the parsing failed.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from typing import Any

from autorubric import LLMConfig, Rubric
from autorubric.graders import CriterionGrader


def kind(report: Any) -> str:
    if report.error is not None:
        return str(report.error).partition(":")[0]
    return "valid"


def main() -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LiteLLM prints advice to standard output when a call fails
    url, budget, temperature = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    model = LLMConfig(
        model="openai/judge",
        api_base=url,
        api_key="none",
        max_tokens=budget,
        temperature=temperature,
        timeout=3600.0,
        max_retries=1,
        seed=0,
    )
    grader = CriterionGrader(judge_model_config=model)
    for line in sys.stdin:
        asked = json.loads(line)
        rubric = Rubric.from_dict([{"weight": 1.0, "requirement": ask} for ask in asked["asks"]])
        result = asyncio.run(rubric.grade(to_grade=asked["text"], grader=grader))
        kinds = Counter(kind(report) for report in result.report)
        found = {"asked": len(asked["asks"]), "valid": kinds["valid"], "kinds": dict(kinds)}
        print(json.dumps(found), file=results, flush=True)


if __name__ == "__main__":
    main()
