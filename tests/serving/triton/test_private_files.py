"""What a process makes after `keep_files_private`, where the kernel takes the filter and where it refuses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving.triton.server import NOT_PRIVATE

REFUSE = """
import ctypes, platform, struct
def refuse_filters():
    # a filter by which every later call of seccomp(2) fails with EPERM, as in a container that forbids it
    libc, number = ctypes.CDLL(None, use_errno=True), {"x86_64": 317, "aarch64": 277}[platform.machine()]
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.syscall(number, 1, 0, struct.pack("@HP", len(lines), ctypes.addressof(program))) == 0
"""
MAKE = """
import os, sys, tempfile
from serving.triton.private_files import keep_files_private
if sys.argv[1:]:
    os.setuid(int(sys.argv[1]))
print(keep_files_private())
with tempfile.TemporaryDirectory() as folder:
    file = os.open(f"{folder}/a", os.O_CREAT | os.O_EXCL, 0o666)
    print(oct(os.fstat(file).st_mode & 0o777))
    for mode in (0o644, 0o400, 0o604):
        os.fchmod(file, mode)
        print(oct(os.fstat(file).st_mode & 0o777))
"""
START = """
import sys
from pathlib import Path
from serving.triton.installation import Installation
from serving.triton.server import TritonServer
work = Path(sys.argv[1])
server = TritonServer(Installation(Path("/bin/true"), work), work / "model_repo", work / "triton.log")
server.start()
print(server.is_private)
server.stop()
"""
NOBODY = "65534"


def run(code: str, *arguments: str) -> list[str]:
    """The lines that a process of its own prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("user", [[], [NOBODY]], ids=["this user", "a user without rights"])
def test_no_later_call_gives_others_a_right(user: list[str]) -> None:
    if user and os.getuid() != 0:
        pytest.skip("this user is one without rights")
    assert run(MAKE, *user) == ["True", "0o600", "0o600", "0o400", "0o400"]


def test_where_the_kernel_refuses_the_filter_it_says_so_and_the_umask_alone_holds() -> None:
    assert run(f"{REFUSE}\nrefuse_filters()\n{MAKE}") == ["False", "0o600", "0o644", "0o400", "0o604"]


@pytest.mark.parametrize("refuse", ["", f"{REFUSE}\nrefuse_filters()\n"], ids=["taken", "refused"])
def test_the_log_of_a_server_that_others_can_read_begins_with_a_warning(refuse: str, tmp_path: Path) -> None:
    assert run(refuse + START, str(tmp_path)) == [str(not refuse)]
    assert (tmp_path / "triton.log").read_text() == (f"{NOT_PRIVATE}\n" if refuse else "")
