"""Finds a Triton server and lays out what it needs to run the Python backend under this interpreter.

Two places are looked at: the wheel `nvidia-pytriton`, which carries the whole server, and `tritonserver` on PATH (the
server's container image). The wheel keeps the Python backend and the stub (the program in which a model's Python runs,
one per Python version) in different folders; the server wants them in one, so a folder of links is made.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import ConfigError

HOW_TO_INSTALL = (
    "pip install 'nvidia-pytriton==0.7.0' (or the extra revelator[server]) into this environment, "
    "or put the tritonserver of NVIDIA's container image on PATH"
)


@dataclass(frozen=True)
class Installation:
    """A server that can be run: its program, the folder of its backends, the folders of libraries it needs."""

    binary: Path
    backends: Path
    libraries: tuple[Path, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with this interpreter's environment first on PATH (the stub finds its packages by it)."""
        own = str(Path(sys.executable).parent)
        libraries = [*map(str, self.libraries), *filter(None, [base.get("LD_LIBRARY_PATH")])]
        left_out = {"PYTHONHOME", "PYTHONPATH"}
        return {
            **{name: value for name, value in base.items() if name not in left_out},
            "PATH": os.pathsep.join(filter(None, [own, base.get("PATH")])),
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "OMP_WAIT_POLICY": base.get("OMP_WAIT_POLICY", "PASSIVE"),  # threads that wait leave the cores to others
            "MALLOC_ARENA_MAX": base.get("MALLOC_ARENA_MAX", "2"),  # or glibc keeps much of hostile requests
            "PYTHONDONTWRITEBYTECODE": "1",  # a version folder holds what was deployed and nothing else
            "PYTHONUNBUFFERED": "1",
        }


def find_installation(work: Path) -> Installation:
    """The server to run; `work` is a folder for the links. ConfigError says what to install when there is none."""
    spec = importlib.util.find_spec("pytriton")
    if spec and spec.submodule_search_locations:
        return _from_wheel(Path(next(iter(spec.submodule_search_locations))), work)
    on_path = shutil.which("tritonserver")
    if on_path:
        return Installation(Path(on_path), Path(on_path).resolve().parent.parent / "backends")
    raise ConfigError("no Triton server on this machine", hint=HOW_TO_INSTALL)


def _from_wheel(package: Path, work: Path) -> Installation:
    server = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise ConfigError(f"the server's wheel has no stub for Python {version}", where=str(stub), hint=HOW_TO_INSTALL)
    links = work / "backends"
    (links / "python").mkdir(parents=True, exist_ok=True)
    for source in (*(server / "backends" / "python").glob("*triton_python*"), stub):
        _link(links / "python" / source.name, source)
    libraries = (_python_library(), package.parent / "nvidia_pytriton.libs")
    return Installation(server / "bin" / "tritonserver", links, tuple(p for p in libraries if p))


def _link(link: Path, target: Path) -> None:
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.symlink_to(target)
    aside.replace(link)


def _python_library() -> Path | None:
    """The folder of this Python's shared library, which the stub needs; None when the loader finds it by itself."""
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
