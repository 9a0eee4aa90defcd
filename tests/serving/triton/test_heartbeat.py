"""A process that holds the interpreter's lock for ever is ended; one that merely waits lives."""

import signal
import subprocess
import sys

PROGRAM = """
import ctypes, time
from serving.triton.inside import processes
processes.LIMIT_SECONDS = 4
processes.start_heartbeat()
time.sleep(5)
print("lives", flush=True)
ctypes.PyDLL(None).sleep(60)
"""


def test_a_process_in_which_no_python_can_run_is_ended():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50)
    assert (ended.stdout, ended.returncode) == ("lives\n", -signal.SIGALRM)
