"""A canary from its start to its verdict: loaded beside the champion, given a share of the questions, judged.

The rows of the comparison and the record in `promotion.json` outlive this process: the same command, run again after a
kill, goes on with the canary that is under way and finishes a verdict that was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from revelator.errors import ConfigError, Conflict
from revelator.files import write_json
from revelator.registry import Version, tag_version
from serving.deployment import canary, promotion, staging
from serving.deployment.canary import Rules, Verdict
from serving.deployment.deploy import alone, deploy, folder_of, settle, try_out
from serving.deployment.promotion import Canary, Promotion
from serving.triton import control
from serving.triton.live import find_running
from serving.triton.repository import REVELATOR

LOOK_SECONDS = 0.5
VERDICT_TAG = "canary"


@dataclass(frozen=True)
class Rollout:
    """`share` of the questions, 0 to 1; a canary that has not been compared enough after `seconds` is withdrawn."""

    home: Path
    version: Version
    share: float
    rules: Rules
    seconds: float = 3600.0
    keep: int = 3

    def run(self, progress: Callable[[int], None] = lambda _: None) -> Verdict:
        """The verdict, once it is carried out. `progress` is told how many prompts have been compared.

        ConfigError when no server runs or the version is the champion; Conflict when another deploy ended the canary.
        """
        promoted = self.begin()
        end = time.monotonic() + self.seconds
        while True:
            rows = canary.recorded(self.home, self.version.version)
            progress(len(rows))
            verdict = canary.judge(self.version.version, promoted.version, rows, self.rules)
            if verdict is None and time.monotonic() > end:
                verdict = canary.too_few(self.version.version, promoted.version, rows, self.rules)
            if verdict:
                self.conclude(verdict)
                return verdict
            time.sleep(LOOK_SECONDS)
            self._look()

    def begin(self) -> Promotion:
        """The version answers its share when this returns. A canary that is under way goes on with its comparisons."""
        home, number = self.home, self.version.version
        with alone(home):
            promoted, url = self._champion(), self._server()
            staging.stage(folder_of(home, number), self.version)
            under_way = promoted.canary
            if not under_way or (under_way.version, under_way.share) != (number, self.share):
                canary.record_file(home, number).unlink(missing_ok=True)
                under_way = Canary(number, self.share, promotion.now())
            try_out(home, url, number, promoted.version)
            begun = replace(promoted, canary=under_way)
            promotion.write(home, begun)
            settle(home, begun, url)
        return begun

    def conclude(self, verdict: Verdict) -> None:
        """Promotes or withdraws, and records the verdict below the home folder and in the registry."""
        write_json(self.home / "canary" / f"{verdict.version}.json", asdict(verdict))
        if verdict.promoted:
            deploy(self.home, self.version, keep=self.keep)
        else:
            with alone(self.home):
                withdrawn = replace(self._champion(), canary=None)
                promotion.write(self.home, withdrawn)
                settle(self.home, withdrawn, self._server())
        outcome = "promoted" if verdict.promoted else f"withdrawn: {'; '.join(verdict.reasons)}"
        tag_version(self.version, VERDICT_TAG, outcome)

    def _look(self) -> None:
        """Loads a canary again that a restart of the server left out."""
        promoted = self._champion()
        if promoted.canary is None or promoted.canary.version != self.version.version:
            where = f"version {self.version.version}"
            raise Conflict("another deploy ended this canary", where=where, hint="run the command again to start anew")
        if not control.is_ready(self._server(), REVELATOR, self.version.version):
            self.begin()

    def _champion(self) -> Promotion:
        promoted = promotion.read(self.home)
        if promoted is None or promoted.version == self.version.version:
            what = "this version takes all traffic already" if promoted else "there is no version to compare it with"
            raise ConfigError(what, where=f"version {self.version.version}", hint="name another with --alias")
        return promoted

    def _server(self) -> str:
        running = find_running(self.home)
        if running is None:
            hint = f"start it: revelator serve --home {self.home}"
            raise ConfigError("a canary needs a running server", where=str(self.home), hint=hint)
        return running.grpc
