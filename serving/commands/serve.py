"""`revelator serve`: the service of a home folder, in the foreground, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from revelator import spans
from revelator.config import check_config
from revelator.errors import ConfigError
from revelator.limits import Limits
from revelator.options import HOME
from serving.commands.model_options import INDEX_ADDRESS

if TYPE_CHECKING:
    from serving.home.config import ServiceFile, ServingConfig
    from serving.home.running import RunningServer
    from serving.service.addresses import Exposure
    from serving.service.pace import Pace
    from serving.service.questions import Questions

T = TypeVar("T")
TRITON_HELP = (
    "Who hosts the models: this process (none), a Triton server that this command starts and looks after (local), or"
    " one that runs over model_repo/ of the home folder, with --model-control-mode=explicit."
)
PLACE = re.compile(r"none|local|grpc://.+:\d{1,5}")
FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)


@click.command()
@HOME
@click.option(
    "--config", "file", type=FILE, help="Settings (default: serving.yaml in the home folder, if it is there)."
)
@click.option("--index", type=INDEX_ADDRESS, help="Index to search (default: the only one in the home folder).")
@click.option("--generator", metavar="embedded|revelator|URL", help="Who reads passages (default: embedded).")
@click.option("--generator-model", metavar="NAME", help="The endpoint's model; its key is read from OPENAI_API_KEY.")
@click.option("--host", help="IP address to listen on (default: 127.0.0.1).")
@click.option("--ports", help="HTTP,gRPC; auto, the default: 8000,8001 if free, else others.")
@click.option("--triton", metavar="none|local|grpc://HOST:PORT", help=TRITON_HELP)
def serve(home: Path, file: Path | None, **given: Any) -> None:
    """Serve the deployed version until Ctrl-C or SIGTERM, on this machine's loopback unless --host says otherwise.

    Where nothing was deployed, the embedded base plans without an adapter. All settings stand in one YAML file, by
    default serving.yaml in the home folder; an option goes before the file. docs/configuration.md lists them. Planner,
    judge and reader (generator) are three settings, each a model of ours or a language model at an OpenAI-compatible
    endpoint, whose key is read from OPENAI_API_KEY:

    \b
      index: runs/indexes/mine
      generator: http://127.0.0.1:11434/v1
      generator_model: llama3.2
      planner: {url: http://127.0.0.1:11434/v1, model: llama3.2}
      judge: embedded                # or none, or {url: …, model: …}
      limits: {leaves: 8}
      tls: {cert: a.pem, key: a.key, ca: ca.pem, mutual: true}

    A start times a call at each endpoint, and raises the deadline of a question where it is too short for them, unless
    limits sets deadline_ms. The deadline alone ends a call, unless timeout bounds each. An endpoint that refuses (a
    wrong address, key or model) ends the start; a reader that is not up yet does not.

    gRPC and HTTP (the page, chat completions, KServe's protocol, metrics, health) answer at the addresses in serve.json
    below --home. The log goes to logs/service.log, Triton's to logs/triton.log, a JSON line a question to
    logs/events.jsonl (or where REVELATOR_EVENTS says).

    \b
    Examples:
      revelator serve
      revelator serve --index runs/indexes/mine
      revelator serve --config serving.yaml
      revelator serve --home runs/demo --ports 9000,9001
      revelator serve --triton local
      revelator serve --generator http://127.0.0.1:11434/v1 --generator-model llama3.2
    """
    from serving.home.config import EVENTS_VARIABLE, ServiceFile, read_settings

    options = {name: value for name, value in given.items() if value is not None}
    if "generator" in options:
        options.setdefault("generator_model", "")
    chosen = read_settings(home, file).model_dump(exclude_unset=True) | options
    settings = check_config(chosen, ServiceFile, str(file or home))
    if not PLACE.fullmatch(settings.triton):
        hint, where = "none, local or grpc://HOST:PORT", "--triton" if "triton" in options else "triton"
        raise ConfigError(f"not where models can be hosted: {settings.triton!r:.60}", where=where, hint=hint)
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # else gRPC speaks up when Triton is started
    if not settings.index and not home.exists():  # an index needs nothing else
        hint = "index your documents, `revelator index build FOLDER --out DIR`, and give --index DIR; or another --home"
        raise ConfigError("nothing stands there", where=str(home), hint=hint)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "name a folder that you may write, with --home or REVELATOR_HOME"
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(home), hint=hint) from error
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        from serving.home.configure import configure
        from serving.service.addresses import open_exposure

        os.environ.setdefault(EVENTS_VARIABLE, str(home.resolve() / "logs" / "events.jsonl"))
        if settings.log_questions:
            os.environ[spans.QUESTIONS_VARIABLE] = "1"
        config = configure(home, **settings.chosen)  # or nothing is left behind
        exposure = open_exposure(settings)
        if exposure.tls:  # for the calls of this process and of the models that it starts
            os.environ.update(exposure.tls.to_environment())
        _serve(home, settings, config, exposure)
    except KeyboardInterrupt:
        click.echo("stopped")


def allow_time(config: ServingConfig, pace: Pace) -> ServingConfig:
    """Returns the configuration with the deadline that questions need, where that is over the default and nobody set
    another."""
    if "deadline_ms" in config.limits or pace.deadline_ms <= config.executor_limits.deadline_ms:
        return config
    return config.model_copy(update={"measured_deadline_ms": pace.deadline_ms})


def describe_pace(pace: Pace, config: ServingConfig) -> Iterator[str]:
    """What a question takes at the endpoints, and what follows for its deadline."""
    from serving.service.pace import MARGIN, STEPS

    if pace.silence:
        yield f"warning: the reader does not answer: {pace.silence}"
    if not pace.question:
        return
    yield f"pace    a question of {STEPS} steps takes {pace}"
    deadline = config.executor_limits.deadline_ms
    if config.timeout and pace.longest_call * MARGIN > config.timeout:
        longest = f"a call of {pace.longest_call:.1f} s can exceed it where others are in flight"
        yield f"warning: timeout: {config.timeout:g} is short: {longest}"
    if config.measured_deadline_ms:
        yield f"deadline {deadline / 1000:g} s a question, by this measure (limits: deadline_ms sets it)"
    elif pace.question * 1000 > deadline:
        yield f"warning: deadline_ms={deadline:g} is shorter: deadline_ms: {pace.deadline_ms:g} gives it time"


def _stop(*_: object) -> None:
    """The first signal stops the server, which takes seconds; more of them change nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _serve(home: Path, settings: ServiceFile, config: ServingConfig, exposure: Exposure) -> None:
    from revelator.channels import read_token
    from serving.service.addresses import read_ports
    from serving.service.control import describe_version
    from serving.service.run import run_until_stopped

    ports = read_ports(settings.ports)
    config, pace = _prepare(home, config)
    status = Console(stderr=True).status("open the models and the index")
    status.start()

    def report(questions: Questions, running: RunningServer) -> None:
        status.stop()
        for name, version in running.models.items():
            click.echo(f"{name} {describe_version(version)}: ready")
        for line in describe_settings(home, config, pace):
            click.echo(line)
        click.echo(f"may ask {describe_callers(exposure, read_token())}")
        for name, retriever in questions.indexes.items():
            click.echo(f"search  {name}: version {retriever.index.version} of {retriever.index.where}")
        for line in questions.describe_host():
            click.echo(line)
        click.echo(f"gRPC    {running.grpc}\nHTTP    {running.http}")
        click.echo(f'log     {running.log}\nask: revelator ask "…" --home {home}   stop: Ctrl-C')

    try:
        with suppress(asyncio.CancelledError):  # told to stop before it was ready
            names, triton, delay = settings.allow_hosts, settings.triton, settings.shutdown_delay
            _run(lambda: run_until_stopped(home, ports, config, exposure, names, triton, report, delay))
    finally:
        status.stop()
    click.echo("stopped")


def _run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """`asyncio.run`; a signal to stop waits until there is an event loop, which it would leave half made."""
    stopping = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with asyncio.Runner() as runner:
        runner.get_loop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)
        return runner.run(make())


def _prepare(home: Path, config: ServingConfig) -> tuple[ServingConfig, Pace]:
    """Times the endpoints, and releases the embedded base where nothing was deployed."""
    from serving.deploy.deploy import release_embedded_base
    from serving.models.releases import read_release
    from serving.service.pace import measure_pace

    with Console(stderr=True).status("time a call at each endpoint"):
        pace = _run(lambda: measure_pace(config))
    if config.needs_release and read_release(home) is None:
        release_embedded_base(home)
        does = "judges" if config.planner else "plans"
        click.echo(f"nothing is deployed: the embedded base {does}. A champion: revelator model deploy --home {home}")
    return allow_time(config, pace), pace


def describe_settings(home: Path, config: ServingConfig, pace: Pace) -> Iterator[str]:
    """What is served and how, a line a setting."""
    from serving.home.config import EMBEDDED
    from serving.models.releases import read_release

    release = read_release(home)
    if release and release.vllm and config.needs_release:
        yield f"revelator version {release.version}, at vLLM {release.vllm}"
    yield f"index   {config.index}\nplanner {config.planner or EMBEDDED}\njudge   {config.judge}"
    yield f"reader  {config.reader}"
    yield from describe_pace(pace, config)
    if config.timeout:
        yield f"timeout {config.timeout:g} s a call of an endpoint"
    if config.sources:
        yield f"sources {config.sources}"
    if config.limits:
        limits = Limits.of_deployment(config.limits)
        yield f"limits  {', '.join(f'{name}={getattr(limits, name):g}' for name in config.limits)}"


def describe_callers(exposure: Exposure, token: str | None) -> str:
    """Who may ask, where `token` is that of the environment."""
    from revelator.channels import TOKEN
    from serving.http.protection import is_loopback

    count = len(exposure.clients.clients)
    tokens = [TOKEN] * (token is not None) + [f"a token of {count} client{'s' * (count > 1)}"] * (count > 0)
    if exposure.issuer:
        tokens.append(f"a verified token of {exposure.issuer.issuer}")
    shown = [" or ".join(tokens)] * bool(tokens)
    if exposure.tls and exposure.mutual:
        shown.append(f"a certificate of {exposure.tls.ca}")
    who = "callers" if shown else "everybody"
    where = " on this machine" if is_loopback(exposure.host) else ""
    header = exposure.clients.groups_header
    groups = f"; the header {header} names their groups" if header else ""
    return "".join([who, where, " with " * bool(shown), " and ".join(shown), groups])
