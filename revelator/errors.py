"""Every error that Revelator raises on purpose, one tree:

    RevelatorError
    ├── ExpressionError          a text is not an expression of the language (line, column, caret)
    ├── PlanError                an expression parses but does not check (carries diagnostics)
    ├── TaskOutputError          a model's output is not what its task promises
    ├── DataError                a row, file or set cannot be used (file, line, reason)
    ├── ConfigError              a configuration file or option is wrong (field, value, reason)
    ├── ArtifactError            a base, adapter, index or registry version does not fit (digest, hash, missing file)
    ├── Conflict                 another process changed the registry first
    ├── GateRefused              a challenger did not pass the promotion gate (carries the table of scores)
    └── ServingError             a question could not be answered
        ├── InvalidRequest       the request itself is wrong
        │   └── Unauthenticated  the service does not know who asks
        ├── Overloaded           admission limit reached; try again later
        ├── Unavailable          a model, index, endpoint or server that is needed is down
        ├── DeadlineExceeded     time ran out before an answer
        └── Cancelled            the client went away

Each says what was wrong, where, and what to do: `message`, `where`, `hint`. `exit_status` is what the command line
returns: 1 for a refusal of content, 2 for wrong usage. The `ServingError` branch carries the gRPC status name that
crosses the wire in `grpc_code`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(eq=False, repr=False)
class RevelatorError(Exception):
    """An error with a place and a way out."""

    exit_status = 1

    message: str
    _: KW_ONLY
    where: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        mend = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.message}{mend}"

    def __repr__(self) -> str:
        """With its text, which Exception shows only of an error whose fields were given in order."""
        return f"{type(self).__name__}({str(self)!r})"


@dataclass(eq=False, repr=False)
class ExpressionError(RevelatorError):
    """A text that is not an expression; `start` and `end` are character offsets, `line` and `column` count from 1.
    `excerpt` is the source line around the fault and, below it, a caret."""

    _: KW_ONLY
    code: str
    start: int
    end: int
    line: int
    column: int
    excerpt: str

    def __post_init__(self) -> None:
        self.where = f"line {self.line}, column {self.column}"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}\n{self.excerpt}\n  hint: {self.hint}"


@dataclass(eq=False, repr=False)
class PlanError(RevelatorError):
    """An expression that parses but cannot be executed; `diagnostics` are `revelator.plans.Diagnostic`s."""

    _: KW_ONLY
    diagnostics: tuple[Any, ...] = ()


class TaskOutputError(RevelatorError):
    """A model's output that its task's parser refuses."""


class DataError(RevelatorError):
    """A row, file or set that cannot be used."""


class ConfigError(RevelatorError):
    """A configuration file or option that is wrong."""

    exit_status = 2


class ArtifactError(RevelatorError):
    """A base, adapter, index or registry version that is missing, damaged, or does not fit."""


class Conflict(RevelatorError):
    """Another process changed the registry between this one's look and its move."""


@dataclass(eq=False, repr=False)
class GateRefused(RevelatorError):
    """The promotion gate said no; `table` is the comparison of scores, ready to print."""

    _: KW_ONLY
    table: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.table}" if self.table else super().__str__()


class ServingError(RevelatorError):
    """A question that could not be answered."""

    grpc_code = "INTERNAL"


class InvalidRequest(ServingError):
    """The request itself is wrong: sending it again will not help."""

    grpc_code = "INVALID_ARGUMENT"


class Unauthenticated(InvalidRequest):
    """The service does not let in who asks: the token is missing, wrong or not valid any more."""

    grpc_code = "UNAUTHENTICATED"


@dataclass(eq=False, repr=False)
class Overloaded(ServingError):
    """The admission limit is reached: try again later.

    `retry_after_ms`: when the server expects to have room again; None when it cannot tell.
    """

    grpc_code = "UNAVAILABLE"

    _: KW_ONLY
    retry_after_ms: float | None = None


@dataclass(eq=False, repr=False)
class Unavailable(ServingError):
    """A model, index, endpoint or server that is needed is down.

    `final`: trying again now cannot help, because that has been done already or the endpoint refused the call.
    """

    grpc_code = "UNAVAILABLE"

    _: KW_ONLY
    final: bool = False


class DeadlineExceeded(ServingError):
    """Time ran out before there was an answer."""

    grpc_code = "DEADLINE_EXCEEDED"


class Cancelled(ServingError):
    """The client cancelled or went away."""

    grpc_code = "CANCELLED"
