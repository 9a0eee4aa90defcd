"""A canary from its start to its verdict: loaded beside the released version, given a share of the questions, judged.

The comparisons (`serving.models.comparisons`) and the record in `release.json` outlive this process: the same command,
run again after a kill, resumes the canary that is under way and finishes a verdict that was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

from revelator import files
from revelator.errors import ConfigError, Conflict
from revelator.registry import Version, tag_version
from serving.deploy.deploy import deploy, hold_deploy_lock, lay_out_version, switch_release, try_version
from serving.deploy.engines import Engine, find_engine
from serving.models.comparisons import CanaryComparison, find_comparisons_file, read_comparisons
from serving.models.releases import Canary, Release, format_now, read_release

LOOK_SECONDS = 0.5
VERDICT_TAG = "canary"


@dataclass(frozen=True)
class CanaryRules:
    """What a canary must keep to. The defaults leave room for chance, and for a better model to differ."""

    comparisons: int = 100  # before there is a verdict
    validity_loss: float = 0.02  # share of valid outputs that it may have less than the released version
    latency_ratio: float = 1.5  # its median time over the released version's, on the same prompts
    agreement: float = 0.5  # share of prompts with the same outcome
    errors: float = 0.01  # share of prompts that it did not answer


@dataclass(frozen=True)
class CanaryVerdict:
    """The figures, and `reasons` against the canary; without any it is deployed."""

    version: int
    released: int
    comparisons: int
    validity: float
    released_validity: float
    latency_ms: float
    released_latency_ms: float
    agreement: float
    errors: float
    reasons: tuple[str, ...]

    @property
    def passes(self) -> bool:
        return not self.reasons


def judge_canary(
    version: int, released: int, rows: Sequence[CanaryComparison], rules: CanaryRules, *, is_late: bool = False
) -> CanaryVerdict | None:
    """Returns the verdict, or None while there are too few comparisons. A canary that fails to answer too often gets
    its verdict before that; one that was not compared enough when its time is up fails."""
    answered = [row for row in rows if not row.error]
    figures = CanaryVerdict(
        version=version,
        released=released,
        comparisons=len(rows),
        validity=mean([row.canary_valid for row in rows] or [False]),
        released_validity=mean([row.released_valid for row in rows] or [False]),
        latency_ms=median([row.canary_ms for row in answered] or [0.0]),
        released_latency_ms=median([row.released_ms for row in answered] or [0.0]),
        agreement=mean([row.agrees for row in answered] or [False]),
        errors=mean([bool(row.error) for row in rows] or [False]),
        reasons=(),
    )
    if len(rows) >= rules.comparisons or len(rows) - len(answered) > rules.errors * rules.comparisons:
        return replace(figures, reasons=tuple(_find_reasons(figures, rules)))
    if is_late:
        reason = f"{len(rows)} comparisons in the time given, and {rules.comparisons} are needed"
        return replace(figures, reasons=(reason,))
    return None


def _find_reasons(figures: CanaryVerdict, rules: CanaryRules) -> list[str]:
    ratio = figures.latency_ms / figures.released_latency_ms if figures.released_latency_ms else 1.0
    tests = (
        (figures.errors > rules.errors, f"errors {figures.errors:.1%}, at most {rules.errors:.1%}"),
        (
            figures.released_validity - figures.validity > rules.validity_loss,
            f"valid {figures.validity:.1%}, the released version {figures.released_validity:.1%}",
        ),
        (
            ratio > rules.latency_ratio,
            f"median latency {ratio:.2f} times the released version's, at most {rules.latency_ratio:g}",
        ),
        (figures.agreement < rules.agreement, f"agreement {figures.agreement:.1%}, at least {rules.agreement:.0%}"),
    )
    return [text for failed, text in tests if failed]


@dataclass(frozen=True)
class CanaryPlan:
    """`share` of the questions, 0 to 1; a canary that has not been compared enough after `seconds` is withdrawn."""

    home: Path
    version: Version
    share: float
    rules: CanaryRules
    seconds: float = 3600.0

    def run(self, report_total: Callable[[int], None] = lambda _: None) -> CanaryVerdict:
        """Returns the verdict once it is carried out. `report_total` gets the number of prompts compared so far.

        Raises ConfigError when no server runs or the version is the released one; Conflict when another deploy ended
        the canary.
        """
        released = self.begin().version
        number, end = self.version.version, time.monotonic() + self.seconds
        while True:
            rows = read_comparisons(self.home, number)
            report_total(len(rows))
            if verdict := judge_canary(number, released, rows, self.rules, is_late=time.monotonic() > end):
                self.conclude(verdict)
                return verdict
            time.sleep(LOOK_SECONDS)
            self._reload_if_lost()

    def begin(self) -> Release:
        """Starts the canary and returns the release. It keeps the comparisons only if the same version already has the
        same share; it replaces any other canary."""
        home, number = self.home, self.version.version
        with hold_deploy_lock(home):
            release, engine = self._read_release(), self._find_engine()
            contents = lay_out_version(home, self.version)
            under_way = release.canary
            if not under_way or (under_way.version, under_way.share) != (number, self.share):
                find_comparisons_file(home, number).unlink(missing_ok=True)
                under_way = Canary(number, self.share, format_now(), contents.model_id)
            try_version(engine, contents, release.version)
            begun = replace(release, canary=under_way)
            switch_release(home, begun, engine)
        return begun

    def conclude(self, verdict: CanaryVerdict) -> None:
        """Deploys or withdraws the version, and records the verdict below the home folder and in the registry."""
        files.write_json(self.home / "canary" / f"{verdict.version}.json", asdict(verdict))
        if verdict.passes:
            deploy(self.home, self.version)
        else:
            with hold_deploy_lock(self.home):
                switch_release(self.home, replace(self._read_release(), canary=None), self._find_engine())
        outcome = "deployed" if verdict.passes else f"withdrawn: {'; '.join(verdict.reasons)}"
        tag_version(self.version, VERDICT_TAG, outcome)

    def _reload_if_lost(self) -> None:
        """Loads a canary again that a restart of the server left out."""
        release = self._read_release()
        if release.canary is None or release.canary.version != self.version.version:
            where = f"version {self.version.version}"
            raise Conflict("another deploy ended this canary", where=where, hint="run the command again to start anew")
        if not self._find_engine().is_ready(self.version.version):
            self.begin()

    def _read_release(self) -> Release:
        release = read_release(self.home)
        if release is None or release.version == self.version.version:
            what = "this version takes all traffic already" if release else "there is no version to compare it with"
            raise ConfigError(what, where=f"version {self.version.version}", hint="name another with --alias")
        return release

    def _find_engine(self) -> Engine:
        engine = find_engine(self.home, None)
        if engine is None:
            hint = f"start it: revelator serve --home {self.home}"
            raise ConfigError("a canary needs a running server", where=str(self.home), hint=hint)
        return engine
