"""How a deployment runs logical queries: ITLR's operators (table 2) and the calibration of terms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from revelator.config import Strict, check_config
from revelator.errors import ConfigError
from serving.retrieval.calibration import read_calibrations
from serving.retrieval.logic import Conjunction, Disjunction, Negation, Operators
from serving.retrieval.logical_search import LogicalSettings


class LogicalConfig(Strict):
    """`calibration`: none, `self` for one fitted on each term's own best documents, or a file of `index calibrate`."""

    conjunction: Conjunction = "product"
    disjunction: Disjunction = "sum"
    negation: Negation = "complement"
    calibration: Literal["none", "self"] | Path = "none"

    def read(self, base: Path = Path()) -> LogicalSettings:
        """A relative file starts at `base`. Raises ArtifactError for one that is no calibration."""
        operators = Operators(self.conjunction, self.disjunction, self.negation)
        if isinstance(self.calibration, Path):
            return LogicalSettings(operators, calibration=read_calibrations(base / self.calibration))
        return LogicalSettings(operators, calibration=self.calibration)


def read_logical_options(options: Sequence[str], option: str = "--logic") -> LogicalConfig | None:
    """What `--logic NAME=VALUE` says, or another `option`; None without any. Raises ConfigError and ArtifactError."""
    if wrong := [text for text in options if "=" not in text]:
        raise ConfigError(f"not NAME=VALUE: {wrong[0]!r}", where=option, hint=f"{option} negation=reciprocal")
    config = check_config(dict(text.split("=", 1) for text in options), LogicalConfig, option)
    if isinstance(config.calibration, Path):
        config = config.model_copy(update={"calibration": config.calibration.resolve()})
    config.read()
    return config if options else None
