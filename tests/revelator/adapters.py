"""Adapters in form, for tests that look at files and versions alone."""

from pathlib import Path

from revelator.artifact import write_manifest


def folder_of(path: Path, text: str) -> Path:
    """An adapter in form; the registry looks at files and manifest alone."""
    path.mkdir(parents=True)
    (path / "adapter_model.safetensors").write_text(text)
    write_manifest(path, base_name="mini", base_digest="b" * 64, data_digest="d" * 64, run_id="")
    return path
