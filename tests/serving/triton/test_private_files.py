"""What a process makes after `keep_files_private`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MAKE = """
import os, sys, tempfile
from serving.triton.private_files import keep_files_private
if sys.argv[1:]:
    os.setuid(int(sys.argv[1]))
keep_files_private()
with tempfile.TemporaryDirectory() as folder:
    file = os.open(f"{folder}/a", os.O_CREAT | os.O_EXCL, 0o666)
    print(oct(os.fstat(file).st_mode & 0o777))
    for mode in (0o644, 0o400, 0o604):
        os.fchmod(file, mode)
        print(oct(os.fstat(file).st_mode & 0o777))
"""
NOBODY = "65534"


@pytest.mark.parametrize("user", [[], [NOBODY]], ids=["this user", "a user without rights"])
def test_no_later_call_gives_others_a_right(user: list[str]) -> None:
    if user and os.getuid() != 0:
        pytest.skip("this user is one without rights")
    made = subprocess.run([sys.executable, "-c", MAKE, *user], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["0o600", "0o600", "0o400", "0o400"]
