"""One Triton server process on loopback, from its start to the last of its children.

The server runs in explicit model control: it starts empty and serves what is loaded. It answers who holds the key of
its certificate, and nobody else. The kernel ends it when its parent dies, so that a killed service leaves nothing
behind. It has a process group of its own, so that a stop reaches the Python stubs of its models even when the server
itself is gone.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator import spans
from revelator.channels import Tls, make_channel_arguments
from revelator.errors import Unavailable
from revelator.files import sha256_text
from serving.triton.certificates import draw_certificate
from serving.triton.installation import Installation
from serving.triton.private_files import keep_files_private

LOOPBACK = "127.0.0.1"
SHARED_MEMORY = Path("/dev/shm")
NEVER_BY_ITSELF = 2**31 - 1  # one request in so many is traced, of those that come without a trace
LIVE_SECONDS = 60.0  # that a starting server may take
LOOK_SECONDS = 0.1
NOT_PRIVATE = (  # the first line of the log where the kernel takes no filter of `keep_files_private`
    "warning: the kernel takes no seccomp filter, so other users of this machine can open the server's shared memory "
    "and read questions and answers: run it in a container (SECURITY.md)"
)
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_ERROR_LINE = re.compile(r"^E\d{4} \S+ \d+ \S+\] \"?(.*?)\"?$")
_TRACEBACK = "\\n\\nAt:"
_NOISE = ("CudaDriverHelper", "NVML", "DCGM")  # errors of every machine without a GPU


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class TritonServer:
    """A context manager: enters with the server live and empty, leaves with it and all its children gone."""

    def __init__(self, installation: Installation, repository: Path, log: Path) -> None:
        self.repository = repository
        self.log = log
        self.url = f"{LOOPBACK}:{_find_free_port()}"
        self.tls: Tls = draw_certificate(repository.parent / "triton" / "tls", LOOPBACK)
        self._installation = installation
        self._process: subprocess.Popen[bytes] | None = None
        # shared memory by the repository's name: what a killed server left can be told from what others use
        self.regions = f"revelator-{sha256_text(str(repository.resolve()))[:16]}-"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_private(self) -> bool:
        """Whether the kernel keeps other users out of the shared memory of the process that was started."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return log.readline() != f"{NOT_PRIVATE}\n"

    def __enter__(self) -> TritonServer:
        self.start()
        try:
            self.wait_until_live()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the process. The server ends when the calling thread does."""
        self._clear_shared_memory()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._build_command(),
                env=self._installation.make_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_prepare_process,
            )

    def _build_command(self) -> list[str]:
        address, port = self.url.split(":")
        options = {
            "model-repository": self.repository,
            "backend-directory": self._installation.backends,
            "model-control-mode": "explicit",
            "strict-readiness": "false",  # a load, or one that failed, is no reason to end a server
            "allow-http": "false",
            "allow-metrics": "false",
            "grpc-address": address,
            "grpc-port": port,
            "grpc-use-ssl-mutual": "true",
            "grpc-server-cert": self.tls.cert,
            "grpc-server-key": self.tls.key,
            "grpc-root-cert": self.tls.ca,
            "grpc-infer-allocation-pool-size": 0,  # one kept for reuse holds the memory of its largest message
            "backend-config": f"python,shm-region-prefix-name={self.regions}",
        }
        settings = [*options.items(), *(("trace-config", setting) for setting in _list_trace_settings())]
        strict = "--disable-auto-complete-config"  # completing a config would start and import each model twice
        return [str(self._installation.binary), strict, *(f"--{name}={value}" for name, value in settings)]

    def wait_until_live(self) -> None:
        """Returns when the server answers. Raises Unavailable with the server's words when it ends before that."""
        client = grpc_client.InferenceServerClient(**make_channel_arguments(self.url, self.tls))
        try:
            end = time.monotonic() + LIVE_SECONDS
            while time.monotonic() < end:
                if not self.is_running:
                    raise self.make_end_error()
                with suppress(InferenceServerException):
                    if client.is_server_live():
                        return
                time.sleep(LOOK_SECONDS)
        finally:
            client.close()
        raise Unavailable(f"the Triton server was not live after {LIVE_SECONDS:g} s", where=str(self.log))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def make_end_error(self) -> Unavailable:
        """The error for a server that has ended by itself, with the signal that killed it or its last messages."""
        status = self._process.poll() if self._process else None
        if status in (-signal.SIGKILL, -signal.SIGTERM):
            hint = "was memory short? then the kernel ends what takes most: see `dmesg`"
            name = signal.Signals(-status).name
            return Unavailable(f"the Triton server was ended by {name}", where=str(self.log), hint=hint)
        messages = "\n  ".join(read_error_lines(self.log)[-5:]) or "it logged nothing"
        return Unavailable(f"the Triton server ended with status {status}\n  {messages}", where=str(self.log))

    def stop(self) -> None:
        """Ends the server's process group at once: who asks it waits for its answers before."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None
        self._clear_shared_memory()

    def _clear_shared_memory(self) -> None:
        for region in SHARED_MEMORY.glob(f"{self.regions}*"):
            region.unlink(missing_ok=True)


def _prepare_process() -> None:
    """Runs in the server's process before its program; standard error is the log already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if not keep_files_private():
        os.write(2, f"{NOT_PRIVATE}\n".encode())


def _list_trace_settings() -> list[str]:
    """Where spans are exported, the server exports its own, of each model's queue and compute, for requests that come
    with a trace."""
    if not (url := spans.find_endpoint()):
        return []
    ours = f"opentelemetry,url={url}", "opentelemetry,resource=service.name=revelator-triton"
    return ["mode=opentelemetry", "level=TIMESTAMPS", f"rate={NEVER_BY_ITSELF}", *ours]


def read_error_lines(log: Path) -> list[str]:
    """The error messages in the server's log, without those of every machine that lacks a GPU; else its last three
    lines."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    found = [m[1].split(_TRACEBACK)[0].replace("\\n", "\n    ") for m in map(_ERROR_LINE.match, lines) if m]
    return [line for line in found if not any(noise in line for noise in _NOISE)] or lines[-3:]
