from pathlib import Path

from axiomrm import manifest
from axiomrm.manifest import code_hash, path_hash


def names() -> set[str]:
    return {name for name, _ in manifest._package_files()}


def test_code_of_every_room_counts_but_not_the_command_line_and_the_report() -> None:
    found = names()
    assert {
        "/config.py",
        "rm/readout.py",
        "rubrics/model.py",
        "policy_opt/losses.py",
        "eval/bootstrap.py",
    } <= found
    assert "rubrics/library/core_axioms.yaml" in found and "rm/templates/compact.j2" in found
    assert not {name for name in found if "/cli" in name or "report" in name or "__pycache__" in name}


def test_a_folders_hash_depends_on_names_and_bytes(tmp_path: Path) -> None:
    assert len(code_hash()) == 64
    (tmp_path / "a").write_text("1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("2")
    before = path_hash(tmp_path)
    (tmp_path / "sub" / "b").write_text("3")
    changed = path_hash(tmp_path)
    (tmp_path / "sub" / "b").rename(tmp_path / "sub" / "c")
    assert len({before, changed, path_hash(tmp_path)}) == 3
