from pathlib import Path

import pytest
import torch

from axiomrm.errors import ConfigError


def test_auto_takes_bf16_only_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    from axiomrm.rm.engines import model_load

    for flags, expected in (({"avx2"}, torch.float32), ({"avx2", "avx512_bf16"}, torch.bfloat16)):
        monkeypatch.setattr(model_load, "cpu_flags", lambda flags=flags: frozenset(flags))
        assert model_load.torch_dtype("auto", "cpu") is expected
    assert model_load.torch_dtype("float16", "cpu") is torch.float16
    with pytest.raises(ConfigError, match="'int8'"):
        model_load.torch_dtype("int8", "cpu")


def test_a_folder_s_hash_is_that_of_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from axiomrm.rm.engines import model_facts

    assert model_facts.files_hash(str(tmp_path)) == ""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(100)))
    whole = model_facts.files_hash(str(tmp_path))
    (tmp_path / "config.json").write_text("{ }")
    assert model_facts.files_hash(str(tmp_path)) == whole
    (tmp_path / "model.safetensors").write_bytes(bytes(range(1, 101)))
    assert model_facts.files_hash(str(tmp_path)) != whole
    # Of a large file the first and the last block: here bytes 0-9 and 90-99.
    monkeypatch.setattr(model_facts, "HASHED_WHOLE", 50)
    monkeypatch.setattr(model_facts, "HASHED_BLOCK", 10)
    seen = {}
    for place in (None, 0, 50, 99):
        content = bytearray(100)
        if place is not None:
            content[place] = 1
        (tmp_path / "model.safetensors").write_bytes(content)
        seen[place] = model_facts.files_hash(str(tmp_path))
    assert seen[50] == seen[None] and len(set(seen.values())) == 3
