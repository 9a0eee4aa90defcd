"""`revelator serve`: the service of a home folder, in the foreground, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from rich.console import Console

from revelator import spans
from revelator.errors import ConfigError
from revelator.limits import LONGEST_MS, Limits
from revelator.options import HOME, PATH
from serving.commands.model_options import judge_options, planner_options, read_judge_options, read_planner_options
from serving.protocols import DECODINGS, PlannerPrompt

if TYPE_CHECKING:
    from serving.home.config import ServingConfig
    from serving.home.running import RunningServer
    from serving.models.endpoint_revelator import PlannerConfig
    from serving.service.addresses import Exposure
    from serving.service.pace import Pace
    from serving.service.questions import Questions

MAX_IN_FLIGHT = (
    "Questions in flight (default: as remembered, else 64); a question over the limit, or one that would miss its"
    " deadline, is refused."
)
T = TypeVar("T")
TIMEOUT = (
    "Of one call of an endpoint that plans, judges or reads; a question has at least as long. 0: a call may take"
    " what is left of its question's deadline (default: as remembered, else 0)."
)
TRITON_HELP = (
    "Who hosts the models: this process (none), a Triton server that this command starts and looks after (local), or"
    " one that runs over model_repo/ of the home folder, with --model-control-mode=explicit."
)
PLACE = re.compile(r"none|local|grpc://.+:\d{1,5}")
FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)


@click.command()
@HOME
@click.option("--ports", default="auto", show_default=True, help="HTTP,gRPC; auto: 8000,8001 if free, else others.")
@click.option("--index", type=PATH, help="Index to search (default: as remembered, else the only one below --home).")
@click.option(
    "--remember", is_flag=True, help="Begin later starts with all settings of this one, unless they name others."
)
@click.option("--generator", metavar="embedded|URL", help="Who reads passages (default: as remembered, else embedded).")
@click.option("--generator-model", metavar="NAME", help="The endpoint's model; its key is read from OPENAI_API_KEY.")
@click.option(
    "--text/--no-text",
    default=None,
    help="Let the language model also write the answer in sentences that cite what was read (default: as remembered,"
    " else written).",
)
@click.option(
    "--own-knowledge/--no-own-knowledge",
    default=None,
    help="Let the language model answer from what it knows where no document does; such an answer is marked.",
)
@planner_options("Who plans: the release, or a language model (default: as remembered, else embedded).", "embedded|URL")
@judge_options(
    "Who judges documents: the release, nobody, or a language model (default: as remembered, else embedded)."
)
@click.option(
    "--sources",
    type=PATH,
    help="YAML file of knowledge sources: indexes, graphs, web; `none`: the index alone (default: as remembered).",
)
@click.option("--timeout", type=click.FloatRange(0, LONGEST_MS / 1000), metavar="SECONDS", help=TIMEOUT)
@click.option(
    "--answer-cache/--no-answer-cache",
    default=None,
    help="Answer a step that was asked before from memory (default: as remembered, else yes).",
)
@click.option("--max-in-flight", type=click.IntRange(1), help=MAX_IN_FLIGHT)
@click.option(
    "--decoding",
    type=click.Choice(DECODINGS),
    help="How plans are written: the best of four, token by token and valid, or freely"
    " (default: as remembered, else beams).",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Lower a limit of the executor's, such as leaves=8; deadline_ms may also be raised.",
)
@click.option(
    "--logic", multiple=True, metavar="NAME=VALUE",
    help="How logical queries are run: conjunction, disjunction, negation, source, calibration (default: remembered).",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="IP address to listen on.")
@click.option("--tls-cert", type=FILE, help="The server's certificate (PEM): gRPC and HTTP speak TLS.")
@click.option("--tls-key", type=FILE, help="Its key.")
@click.option("--tls-ca", type=FILE, help="Certificate of the authority that signed it, and the clients'.")
@click.option("--tls-name", metavar="NAME", help="The name in the certificate, where that is not 127.0.0.1.")
@click.option("--tls-mutual", is_flag=True, help="Clients must show a certificate of the same authority.")
@click.option("--triton", metavar="none|local|grpc://HOST:PORT", default="none", show_default=True, help=TRITON_HELP)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Another name for HTTP.")
@click.option("--log-questions", is_flag=True, help="Write questions, plans and answers into logs/events.jsonl, too.")
def serve(
    home: Path,
    ports: str,
    planner: str | None,
    planner_model: str | None,
    planner_prompt: PlannerPrompt | None,
    judge: str | None,
    judge_model: str | None,
    limits: tuple[str, ...],
    logic: tuple[str, ...],
    host: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_name: str | None,
    tls_mutual: bool,
    triton: str,
    hosts: tuple[str, ...],
    log_questions: bool,
    **chosen: Any,
) -> None:
    """Serve the deployed version until Ctrl-C or SIGTERM, on this machine's loopback unless --host says otherwise.

    Where nothing was deployed, the embedded base plans without an adapter. With --planner, any language
    model plans at an OpenAI-compatible endpoint, or an adapter at a vLLM server; its key is read from OPENAI_API_KEY.
    Planner, judge and reader (--generator) are three settings: whoever plans, the release judges documents.

    A start times a call at each endpoint, and raises the deadline of a question where it is too short for them, unless
    --limit deadline_ms=N sets it. The deadline alone ends a call, unless --timeout bounds each. An endpoint that
    refuses (a wrong address, key or model) ends the start; a reader that is not up yet does not.

    Nothing is remembered without --remember. With it, later starts begin with what this one serves and how, in
    remembered.json below --home: index, sources, planner, judge, reader and all else, but for addresses and TLS.

    gRPC and HTTP (the page, chat completions, KServe's protocol, metrics, health) answer at the addresses in serve.json
    below --home. The log goes to logs/service.log, Triton's to logs/triton.log, a JSON line a question to
    logs/events.jsonl (or where REVELATOR_EVENTS says).

    \b
    Examples:
      revelator serve --index runs/indexes/mine --remember
      revelator serve
      revelator serve --home runs/demo --ports 9000,9001
      revelator serve --triton local
      revelator serve --triton grpc://127.0.0.1:9101
      revelator serve --sources sources.yaml
      revelator serve --generator http://127.0.0.1:11434/v1 --generator-model llama3.2
      revelator serve --planner http://127.0.0.1:11434/v1 --planner-model llama3.2
      revelator serve --planner http://127.0.0.1:8000/v1 --planner-model mine --planner-prompt trained
      revelator serve --judge http://127.0.0.1:11434/v1 --judge-model llama3.2
      revelator serve --limit question_characters=500 --limit leaves=8
      revelator serve --logic negation=reciprocal --logic calibration=fitted.json
      revelator serve --host 0.0.0.0 --tls-cert a.pem --tls-key a.key --tls-ca ca.pem
    """
    if not PLACE.fullmatch(triton):
        hint = "--triton none, --triton local or --triton grpc://HOST:PORT"
        raise ConfigError(f"not where models can be hosted: {triton!r:.60}", where="--triton", hint=hint)
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # else gRPC speaks up when Triton is started
    plans: PlannerConfig | Literal["embedded"] | None = "embedded"
    if planner != plans or planner_model or planner_prompt:
        plans = read_planner_options(planner, planner_model, planner_prompt)
    chosen["judge"] = read_judge_options(judge, judge_model)
    if not chosen["index"] and not home.exists():  # an index needs nothing else
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
        from serving.home.config import EVENTS_VARIABLE
        from serving.home.configure import configure
        from serving.retrieval.logical_search import read_logical_options
        from serving.service.addresses import Exposure, choose_tls

        os.environ.setdefault(EVENTS_VARIABLE, str(home.resolve() / "logs" / "events.jsonl"))
        if log_questions:
            os.environ[spans.QUESTIONS_VARIABLE] = "1"
        how = read_logical_options(logic)
        lower = dict(map(_read_limit, limits)) or None
        config = configure(home, **chosen, planner=plans, logic=how, limits=lower)  # or nothing is left behind
        exposure = Exposure(host, choose_tls(tls_cert, tls_key, tls_ca, tls_name), tls_mutual)
        if exposure.tls:  # for the calls of this process and of the models that it starts
            os.environ.update(exposure.tls.to_environment())
        _serve(home, ports, config, exposure, hosts, triton)
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
        yield f"warning: --timeout {config.timeout:g} is short: {longest}"
    if config.measured_deadline_ms:
        yield f"deadline {deadline / 1000:g} s a question, by this measure (--limit deadline_ms=N sets it)"
    elif pace.question * 1000 > deadline:
        yield f"warning: deadline_ms={deadline:g} is shorter: --limit deadline_ms={pace.deadline_ms:g} gives it time"


def _read_limit(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number) if "." in number else int(number)
    except ValueError as error:
        raise ConfigError(f"not NAME=NUMBER: {text!r}", where="--limit", hint="--limit leaves=8") from error


def _stop(*_: object) -> None:
    """The first signal stops the server, which takes seconds; more of them change nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _serve(
    home: Path, ports: str, config: ServingConfig, exposure: Exposure, hosts: tuple[str, ...], triton: str
) -> None:
    from serving.service.addresses import read_ports
    from serving.service.control import describe_version
    from serving.service.run import run_until_stopped

    chosen = read_ports(ports)
    config, pace = _prepare(home, config)
    status = Console(stderr=True).status("open the models and the index")
    status.start()

    def report(questions: Questions, running: RunningServer) -> None:
        status.stop()
        for name, version in running.models.items():
            click.echo(f"{name} {describe_version(version)}: ready")
        for line in describe_settings(home, config, pace):
            click.echo(line)
        for name, retriever in questions.indexes.items():
            click.echo(f"search  {name}: version {retriever.index.version} of {retriever.index.folder}")
        for line in questions.describe_host():
            click.echo(line)
        click.echo(f"gRPC    {running.grpc}\nHTTP    {running.http}")
        click.echo(f'log     {running.log}\nask: revelator ask "…" --home {home}   stop: Ctrl-C')

    try:
        with suppress(asyncio.CancelledError):  # told to stop before it was ready
            _run(lambda: run_until_stopped(home, chosen, config, exposure, hosts, triton, report))
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
    from serving.home.config import EMBEDDED, REMEMBERED_FILE
    from serving.models.releases import read_release

    release = read_release(home)
    if release and release.vllm and config.needs_release:
        yield f"revelator version {release.version}, at vLLM {release.vllm}"
    yield f"index   {config.index}\nplanner {config.planner or EMBEDDED}\njudge   {config.judge}"
    yield f"reader  {config.reader}"
    yield from describe_pace(pace, config)
    if config.timeout:
        yield f"timeout {config.timeout:g} s a call of an endpoint (--timeout 0: the deadline alone)"
    if config.sources:
        yield f"sources {config.sources} (--sources none: the index alone)"
    if config.limits:
        limits = Limits.of_deployment(config.limits)
        yield f"limits  {', '.join(f'{name}={getattr(limits, name):g}' for name in config.limits)}"
    if config.remembered:
        yield f"remembered for later starts, but for addresses and TLS: {home / REMEMBERED_FILE}"
    elif (home / REMEMBERED_FILE).is_file():
        yield f"began with what was remembered in {home / REMEMBERED_FILE}; remove it to forget that"
