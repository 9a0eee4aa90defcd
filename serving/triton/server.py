"""One Triton server process on loopback, from its start to the last of its children.

The server runs in explicit model control: it starts empty and serves what `load` names. The kernel ends it when its
parent dies, so that a killed `revelator serve` leaves nothing behind. It has a process group of its own, so that a stop
reaches the Python stubs of its models even when the server itself is gone.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator import spans
from revelator.channels import make_channel_arguments
from revelator.errors import ConfigError, Unavailable
from revelator.files import sha256_text
from serving.triton.access import CLOSED, CONTROL, LOOPBACK, Exposure, read_secret
from serving.triton.installation import Installation
from serving.triton.private_files import keep_files_private

SHARED_MEMORY = Path("/dev/shm")
NEVER_BY_ITSELF = 2**31 - 1  # one request in so many is traced, of those that come without a trace
LIVE_SECONDS = 60.0  # that a starting server may take
EXIT_SECONDS = 10  # that a stopping server waits for running questions
NOT_PRIVATE = (  # the first line of the log where the kernel takes no filter of `keep_files_private`
    "warning: the kernel takes no seccomp filter, so other users of this machine can open the server's shared memory "
    "and read questions, answers and the inner token: run it in a container (SECURITY.md)"
)
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_ERROR_LINE = re.compile(r"^E\d{4} \S+ \d+ \S+\] \"?(.*?)\"?$")
_TRACEBACK = "\\n\\nAt:"
_NOISE = ("CudaDriverHelper", "NVML", "DCGM")  # errors of every machine without a GPU


@dataclass(frozen=True)
class Ports:
    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002

    def find_taken(self) -> list[int]:
        """The ports that another process listens on."""
        return [port for port in asdict(self).values() if not _is_free(port)]


def read_ports(text: str) -> Ports:
    """`8000,8001,8002` (HTTP, gRPC, metrics), or `auto`: those when they are free, else any three that are."""
    if text == "auto":
        return Ports() if not Ports().find_taken() else _find_free_ports()
    try:
        http, grpc, metrics = map(int, text.split(","))
    except ValueError:
        hint = "--ports 8000,8001,8002"
        raise ConfigError(f"ports are three numbers or auto, not {text!r}", where="--ports", hint=hint) from None
    ports, numbers = Ports(http, grpc, metrics), [http, grpc, metrics]
    if wrong := [number for number in numbers if not 0 < number < 65536]:
        raise ConfigError(f"a port is a number from 1 to 65535, not {wrong[0]}", where="--ports")
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise ConfigError(f"port {twice[0]} is named twice", where="--ports")
    if taken := ports.find_taken():
        raise ConfigError(f"port {taken[0]} is in use", where="--ports", hint="name other ports, or --ports auto")
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _find_free_ports() -> Ports:
    with ExitStack() as open_sockets:
        numbers = []
        for _ in range(3):
            probe = open_sockets.enter_context(socket.socket())
            probe.bind((LOOPBACK, 0))
            numbers.append(probe.getsockname()[1])
    return Ports(*numbers)


def _choose_hidden_address() -> tuple[str, int]:
    """A free port at one of the 2^24 loopback addresses, which no page in a browser can guess."""
    address = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, probe.getsockname()[1]


class TritonServer:
    """A context manager: enters with the server live and empty, leaves with it and all its children gone."""

    def __init__(
        self,
        installation: Installation,
        repository: Path,
        ports: Ports,
        log: Path,
        exposure: Exposure = CLOSED,
    ) -> None:
        self.repository = repository
        self.ports = ports
        self.log = log
        self._exposure = exposure
        self.metrics_folder = repository.parent / "triton" / "metrics"  # of `serving.service.metrics`
        self._metrics = _choose_hidden_address()
        self._token = read_secret(repository.parent, CONTROL)
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

    @property
    def url(self) -> str:
        return f"{LOOPBACK}:{self.ports.grpc}"

    @property
    def metrics_url(self) -> str:
        """The address of Triton's own page of metrics, for this process alone: it takes 500 MB for a request of half a
        million chunks, and answers pages of any site. Others read the page of `serving.http.gateway`."""
        return f"http://{self._metrics[0]}:{self._metrics[1]}/metrics"

    def __enter__(self) -> TritonServer:
        self.start()
        try:
            self.wait_until_live()
            self._blank_token()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the process. Call it from the main thread: the server ends when the calling thread does."""
        self._clear_shared_memory()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.metrics_folder, ignore_errors=True)
        self.metrics_folder.mkdir(parents=True)
        environment = self._installation.make_environment(os.environ)
        environment |= {"REVELATOR_GRPC": self.url, "PROMETHEUS_MULTIPROC_DIR": str(self.metrics_folder)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._build_command(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_prepare_process,
            )

    def _build_command(self) -> list[str]:
        options = {
            "model-repository": self.repository,
            "backend-directory": self._installation.backends,
            "model-control-mode": "explicit",
            "exit-timeout-secs": EXIT_SECONDS,
            "strict-readiness": "false",  # what probes hear: a load, or one that failed, is no reason to end a server
            "allow-http": "false",
            "grpc-port": self.ports.grpc,
            "grpc-infer-allocation-pool-size": 0,  # one kept for reuse holds the memory of its largest message
            "metrics-address": self._metrics[0],
            "metrics-port": self._metrics[1],
            "backend-config": f"python,shm-region-prefix-name={self.regions}",
            "grpc-header-forward-pattern": spans.HEADER,  # as a parameter of the request
            **self._exposure.build_options(self._token),
        }
        settings = [*options.items(), *(("trace-config", setting) for setting in _list_trace_settings())]
        strict = "--disable-auto-complete-config"  # completing a config would start and import each model twice
        return [str(self._installation.binary), strict, *(f"--{name}={value}" for name, value in settings)]

    def _blank_token(self) -> None:
        """Takes the token out of the live server's command line, which every user of the machine can read. Triton 2.51
        takes it as an option alone, and has read its options by now. A kernel that refuses leaves it there."""
        process = Path(f"/proc/{self.pid}")
        with suppress(OSError), (process / "mem").open("r+b", buffering=0) as memory:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5), counted from the state
            memory.seek(start)
            before, said, _ = memory.read(end - start).partition(f"=Bearer {self._token}".encode())
            if said:
                memory.seek(start + len(before) + len("=Bearer "))
                memory.write(b"*" * len(self._token))

    def wait_until_live(self) -> None:
        """Returns when the server answers. Raises Unavailable with the server's words when it ends before that."""
        client = grpc_client.InferenceServerClient(**make_channel_arguments(self.url))
        try:
            wait_until(lambda: self._is_running() and client.is_server_live(), "the Triton server", LIVE_SECONDS)
        finally:
            client.close()

    def _is_running(self) -> bool:
        if self.poll() is None:
            return True
        raise self.make_end_error()

    def make_end_error(self) -> Unavailable:
        """The error for a server that has ended by itself, with the signal that killed it or its last messages."""
        status = self.poll()
        if status in (-signal.SIGKILL, -signal.SIGTERM):
            hint = "was memory short? then the kernel ends what takes most: see `dmesg`"
            name = signal.Signals(-status).name
            return Unavailable(f"the Triton server was ended by {name}", where=str(self.log), hint=hint)
        messages = "\n  ".join(read_error_lines(self.log)[-5:]) or "it logged nothing"
        return Unavailable(f"the Triton server ended with status {status}\n  {messages}", where=str(self.log))

    def poll(self) -> int | None:
        """The exit status, or None while the server runs."""
        assert self._process is not None
        return self._process.poll()

    def stop(self, *, at_once: bool = False) -> None:
        """Asks the server to end and waits for questions in flight, unless `at_once`; then ends its process group."""
        process = self._process
        if process is None:
            return
        if not at_once:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_SECONDS + 10)
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


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Polls `condition` ten times a second; a server that does not answer yet counts as false. Raises Unavailable when
    it is still false after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(InferenceServerException):
            if condition():
                return
        time.sleep(0.1)
    raise Unavailable(f"{what} was not ready after {seconds:.0f} s")


def read_error_lines(log: Path) -> list[str]:
    """The error messages in the server's log, without those of every machine that lacks a GPU; else its last three
    lines."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    found = [m[1].split(_TRACEBACK)[0].replace("\\n", "\n    ") for m in map(_ERROR_LINE.match, lines) if m]
    return [line for line in found if not any(noise in line for noise in _NOISE)] or lines[-3:]
