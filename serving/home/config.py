"""What a home folder serves: `serving.yaml`, which people write, and `serving.json`, which each start writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from revelator import files
from revelator.config import Strict, read_config
from revelator.endpoints import check_url
from revelator.errors import ConfigError, InvalidRequest
from revelator.limits import LONGEST_MS, Limits
from serving.executor.judges import JudgeSetting
from serving.http.issuer import TokenIssuer
from serving.models.endpoint_revelator import PlannerConfig
from serving.protocols import Decoding, Writing
from serving.retrieval.logical_search import LogicalSettings
from serving.retrieval.places import IndexAddress

SERVING_FILE = "serving.json"
SETTINGS_FILE = "serving.yaml"
EVENTS_VARIABLE = "REVELATOR_EVENTS"  # names the file that gets a line a question; `-` is standard error
EMBEDDED: Literal["embedded"] = "embedded"  # the models of this package: the release plans and judges
REVELATOR = "revelator"  # reads, too: the release, or the endpoint that plans in its place


class ServingSettings(Strict):
    """What is served, and how.

    `timeout` holds for planner, judge and reader alike, retries included. Without one, a call may take what is left of
    its question's deadline."""

    index: IndexAddress | None = None  # the one that is searched; none: the only one in the home folder
    generator: str = EMBEDDED  # who reads: `embedded`, `revelator`, or the URL of an OpenAI-compatible endpoint
    generator_model: str = ""  # the endpoint's model
    planner: PlannerConfig | None = None  # an endpoint that plans in place of the release
    judge: JudgeSetting = EMBEDDED  # who judges documents: the release, nobody, or an endpoint
    text: bool = True  # whether the language model also writes the answer in sentences that cite what was read
    own_knowledge: bool = False  # whether the language model answers what no document does
    timeout: Annotated[float, Field(gt=0, le=LONGEST_MS / 1000)] | None = None  # seconds of one call of an endpoint
    sources: Path | None = None  # file that names the knowledge sources; without one the index alone is searched
    limits: dict[str, int | float] = Field(default_factory=dict)  # lower ones than the executor's own
    logic: LogicalSettings = LogicalSettings()  # how logical queries are run
    decoding: Decoding = "beams"  # how plans are written
    uploads: bool | None = None  # whether the page adds documents to the index; none: if only this machine reaches it
    answer_cache: bool = True  # whether a step that was asked before is answered from memory
    max_in_flight: Annotated[int, Field(ge=1)] = 64  # questions that are answered or wait; more are refused
    at_once: Annotated[int, Field(ge=1)] | None = None  # how many of them are worked on at a time

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reads_at_endpoint:
            if not self.generator.startswith(("http://", "https://")):
                raise ConfigError("neither `embedded`, `revelator` nor a URL", where="generator")
            if not self.generator_model:
                raise ConfigError("an endpoint needs the name of a model", where="generator_model")
            check_url(self.generator)
        try:
            Limits.of_deployment(self.limits)
        except InvalidRequest as error:
            raise ConfigError(error.message, where="limits", hint=error.hint) from error
        return self

    @property
    def reads_at_endpoint(self) -> bool:
        return self.generator not in (EMBEDDED, REVELATOR)

    @property
    def needs_release(self) -> bool:
        """Whether the release plans or judges."""
        return self.planner is None or self.judge == EMBEDDED

    @property
    def reader(self) -> str:
        """What people call who reads passages."""
        return f"{self.generator_model} at {self.generator}" if self.reads_at_endpoint else self.generator

    @property
    def writing(self) -> Writing:
        """What the language model writes. Without one nothing is written."""
        has_text = self.reads_at_endpoint and self.text
        return Writing(has_text, self.own_knowledge, reads_messages=self.reads_at_endpoint)


class TlsFiles(Strict):
    """Files (PEM) with which gRPC and HTTP speak TLS."""

    cert: Path  # the service's certificate
    key: Path
    ca: Path  # certificate of the authority that signed it, and the clients'
    name: str | None = None  # in the certificate, where that is not 127.0.0.1
    mutual: bool = False  # whether clients must show a certificate of the same authority


class ServiceFile(ServingSettings):
    """What `revelator serve` reads from `serving.yaml`. Paths start at the current folder."""

    host: str = "127.0.0.1"  # IP address to listen on
    ports: str = "auto"  # `8000,8001` (HTTP, gRPC); auto: these if they are free, else others
    triton: str = "none"  # who hosts the models: none, local, or grpc://HOST:PORT
    tls: TlsFiles | None = None
    clients: Path | None = None  # file of clients: the digest of each one's token, and its groups; or a gateway
    callers: TokenIssuer | None = None  # who signs the tokens of further callers, which name their groups
    allow_hosts: tuple[str, ...] = ()  # further names under which HTTP may be called
    shutdown_delay: Annotated[float, Field(ge=0)] = 0.0  # seconds after SIGTERM, a balancer's time to notice
    log_questions: bool = False  # whether logs/events.jsonl holds questions, plans and answers, too

    @property
    def chosen(self) -> dict[str, Any]:
        """What the file says of `ServingSettings`."""
        return {name: getattr(self, name) for name in ServingSettings.model_fields if name in self.model_fields_set}


class ServingConfig(ServingSettings):
    """What is served by now, in `serving.json`. `revelator serve` writes it at each start, `model deploy` the cards."""

    measured_deadline_ms: float | None = None  # what endpoints need, measured at the start, if that is over the default
    gpus: tuple[int, ...] = ()  # cards for plans and vectors; none: the CPU
    instances: Annotated[int, Field(ge=1)] = 1  # processes of each model on each card

    @property
    def executor_limits(self) -> Limits:
        """The limits of every question. Unless somebody chose a deadline, it is as long as a call of an endpoint may
        take, and as questions were measured to need."""
        needed = max(Limits().deadline_ms, 1000 * (self.timeout or 0), self.measured_deadline_ms or 0)
        return Limits.of_deployment({"deadline_ms": needed} | self.limits)


def read_settings(home: Path, path: Path | None = None) -> ServiceFile:
    """The file at `path`, else the home folder's, else the defaults. Raises ConfigError for a file that is wrong."""
    if path is None and not (home / SETTINGS_FILE).is_file():
        return ServiceFile()
    return read_config(path or home / SETTINGS_FILE, ServiceFile)


def read_serving(home: Path) -> ServingConfig:
    """What the last start served, or the defaults. Raises ConfigError for a file that is wrong."""
    return read_config(home / SERVING_FILE, ServingConfig) if (home / SERVING_FILE).is_file() else ServingConfig()


def write_serving(home: Path, config: ServingConfig) -> None:
    files.write_json(home / SERVING_FILE, config.model_dump(mode="json"))
