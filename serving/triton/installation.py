"""Finds a Triton server and lays out what it needs to run the Python backend under this interpreter.

The server is taken from the wheel `nvidia-pytriton`, which carries it whole, or else from PATH, where the container
image has it. The wheel keeps the Python backend and its stub (the program that runs a model's Python, one for each
version of Python) in different folders. The server needs them in one, so a folder of copies is made.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import ConfigError

HOW_TO_INSTALL = (
    "pip install 'nvidia-pytriton==0.7.0' (or the extra revelator[server]) into this environment, "
    "or put the tritonserver of NVIDIA's container image on PATH"
)


@dataclass(frozen=True)
class Installation:
    """A server that can be run: its program, the folder of its backends, the folders of the libraries it needs."""

    binary: Path
    backends: Path
    libraries: tuple[Path, ...] = ()

    def make_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns `base` with PATH (this interpreter first, for the stub), LD_LIBRARY_PATH and Python's settings as the
        server needs them; PYTHONHOME and PYTHONPATH are removed."""
        own = str(Path(sys.executable).parent)
        libraries = [*map(str, self.libraries), *filter(None, [base.get("LD_LIBRARY_PATH")])]
        removed = {"PYTHONHOME", "PYTHONPATH"}
        return {
            **{name: value for name, value in base.items() if name not in removed},
            "PATH": os.pathsep.join(filter(None, [own, base.get("PATH")])),
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "OMP_WAIT_POLICY": base.get("OMP_WAIT_POLICY", "PASSIVE"),  # threads that wait leave the cores to others
            "PYTHONDONTWRITEBYTECODE": "1",  # a version folder holds what was deployed and nothing else
            "PYTHONUNBUFFERED": "1",
        }


def is_installed() -> bool:
    """Whether there is a server: the wheel is for Python 3.11 and 3.12."""
    return bool(importlib.util.find_spec("pytriton") or shutil.which("tritonserver"))


def find_installation(work: Path) -> Installation:
    """Finds the server to run; copies are made below `work`. Raises ConfigError that says what to install."""
    if found := next(_list_installations(work), None):
        return found
    raise ConfigError("no Triton server on this machine", hint=HOW_TO_INSTALL)


def _list_installations(work: Path) -> Iterator[Installation]:
    spec = importlib.util.find_spec("pytriton")
    if spec and spec.submodule_search_locations:
        yield _lay_out_wheel(Path(next(iter(spec.submodule_search_locations))), work)
    if on_path := shutil.which("tritonserver"):
        yield Installation(Path(on_path), Path(on_path).resolve().parent.parent / "backends")


def _lay_out_wheel(package: Path, work: Path) -> Installation:
    server = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise ConfigError(f"the server's wheel has no stub for Python {version}", where=str(stub), hint=HOW_TO_INSTALL)
    backends = work / "backends"
    (backends / "python").mkdir(parents=True, exist_ok=True)
    for source in (*(server / "backends" / "python").glob("*triton_python*"), stub):
        _copy(source, backends / "python" / source.name)
    libraries = (_find_python_library(), package.parent / "nvidia_pytriton.libs")
    return Installation(server / "bin" / "tritonserver", backends, tuple(p for p in libraries if p))


def _copy(source: Path, target: Path) -> None:
    """Copies atomically. A link would not do: Triton refuses a library that lies outside the backend's folder."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(source, aside)
    aside.replace(target)


def _find_python_library() -> Path | None:
    """Finds the folder of this Python's shared library, which the stub needs; None where the loader finds it by
    itself. Raises ConfigError where there is none."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR"),
        sysconfig.get_config_var("LIBPL"),
        str(Path(sys.base_prefix) / "lib"),
    ]
    for folder in filter(None, folders):
        if (Path(folder) / name).exists():
            return Path(folder)
    if ctypes.util.find_library(name.removeprefix("lib").split(".so")[0]):
        return None
    raise ConfigError(
        f"this Python has no shared library {name}, and the server's Python backend needs it",
        where=sys.executable,
        hint=f"on Debian: apt-get install libpython{sys.version_info.major}.{sys.version_info.minor}; "
        "with pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared",
    )
