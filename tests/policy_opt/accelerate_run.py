"""Toy runs as one process of several; test_accelerate launches it.

Usage: torchrun … accelerate_run.py FOLDER; each process writes FOLDER/rank<n>.pt.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from axiomrm.errors import ConfigError, DataError


def neighbour(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared_run(trainer: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"backwards": 0, "uneven": False}
    share, backward = trainer.replica.share, trainer.replica.backward

    def counted_share(batches: Any) -> Any:
        seen["uneven"] |= len(batches) % 2 == 1
        return share(batches)

    def counted_backward(loss: Any) -> None:
        seen["backwards"] += 1
        backward(loss)

    trainer.replica.share, trainer.replica.backward = counted_share, counted_backward
    seen["rows"] = trainer.run()
    buffer = getattr(trainer.algorithm, "buffer", None)
    seen["weights"] = [step.last_w for r in buffer.records for step in r.steps] if buffer else []
    return {**seen, "model": trainer.model.state_dict()}


def refused(trainer: Any, found: dict[str, Any]) -> None:
    """The main process's log-probs are spoilt after sampling."""
    collect = trainer.rollout

    def spoilt(tasks: Any) -> Any:
        episodes = collect(tasks)
        for episode in episodes:
            for step in episode.record.steps:
                step.behaviour_logprobs = step.behaviour_logprobs - 0.3
        return episodes

    trainer.rollout = spoilt
    before = [p.clone() for p in trainer.model.parameters()]
    try:
        trainer.run()
    except DataError as error:
        found["refused"] = str(error)
    found["unmoved"] = all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    world, tests = neighbour("conftest"), neighbour("test_accelerate")
    toy = world.Toy(
        world.ToyChat(),
        world.CopyEnv,
        world.copy_tasks,
        world.tiny_llama,
        world.warm_llama,
        world.oracle_judge,
    )
    accelerator = Accelerator(cpu=True)
    found: dict[str, Any] = {}
    for algorithm in tests.SHARED:
        place = folder / algorithm.kind
        found[algorithm.kind] = shared_run(
            toy.trainer(place, tests.config(algorithm=algorithm), accelerator=accelerator)
        )
    found["rescored"] = tests.rescored(toy, folder / "rescored", accelerator)
    refused(toy.trainer(folder / "refused", tests.config(), accelerator=accelerator), found)
    for name, options in tests.UNSHARED.items():
        try:
            toy.trainer(folder / name, tests.config().model_copy(update=options), accelerator=accelerator)
        except ConfigError as error:
            found[name] = str(error)
    torch.save(found, folder / f"rank{accelerator.process_index}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
