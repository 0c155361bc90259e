import hashlib
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


def test_a_folder_s_hash_is_that_of_its_weights(tmp_path: Path) -> None:
    from axiomrm.rm.engines import model_facts

    with pytest.raises(ConfigError, match=r"no weights \(\*\.safetensors, \*\.bin\)"):
        model_facts.files_hash(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(100)))
    whole = model_facts.files_hash(str(tmp_path))
    # Judges that were trained are known by it: name, size and content of each file.
    assert whole == hashlib.blake2b(b"model.safetensors 100 " + bytes(range(100)), digest_size=20).hexdigest()
    (tmp_path / "config.json").write_text("{ }")
    assert model_facts.files_hash(str(tmp_path)) == whole
    for place in range(100):
        content = bytearray(range(100))
        content[place] ^= 1
        (tmp_path / "model.safetensors").write_bytes(content)
        assert model_facts.files_hash(str(tmp_path)) != whole


def test_of_large_weights_a_part_of_every_stretch_enters_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axiomrm.rm.engines import model_facts

    for name, size in (("HASHED_WHOLE", 50), ("HASHED_BLOCK", 10), ("SAMPLED_EVERY", 20), ("SAMPLED", 5)):
        monkeypatch.setattr(model_facts, name, size)
    seen = {}
    for place in (None, *range(98)):
        content = bytearray(98)
        if place is not None:
            content[place] = 1
        (tmp_path / "model.safetensors").write_bytes(content)
        seen[place] = model_facts.files_hash(str(tmp_path))
    noticed = {place for place in range(98) if seen[place] != seen[None]}
    stretches = [range(start, start + 5) for start in (0, 20, 40, 60, 80, 93)]
    assert noticed == {place for stretch in stretches for place in stretch}


def test_another_layer_in_the_middle_of_large_weights_is_another_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axiomrm.rm.engines import model_facts

    monkeypatch.setattr(model_facts, "HASHED_WHOLE", 1 << 21)
    monkeypatch.setattr(model_facts, "HASHED_BLOCK", 1 << 20)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(0, 256, (6 << 20,), generator=generator, dtype=torch.uint8).numpy()
    (tmp_path / "model.safetensors").write_bytes(weights.tobytes())
    before = model_facts.files_hash(str(tmp_path))
    weights[5 << 19 : 7 << 19] += 1  # 1 MiB in the middle
    (tmp_path / "model.safetensors").write_bytes(weights.tobytes())
    assert model_facts.files_hash(str(tmp_path)) != before


@pytest.mark.parametrize("device", ["zz", "cuda:99", "meta", ""])
def test_a_device_that_is_not_here_is_named(device: str, tmp_path: Path) -> None:
    from axiomrm.rm.engines.model_load import load_model

    with pytest.raises(ConfigError, match=f"device {device!r}"):
        load_model(str(tmp_path), dtype="float32", device=device)
