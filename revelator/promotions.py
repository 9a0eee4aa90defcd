"""Moves the alias of the champion safely when several processes promote at the same time.

MLflow moves an alias atomically but cannot compare before it does. What decides here is a log: the versions of the
registered model `<name>-promotions`, whose numbers the store hands out one after another, each once (a primary key). An
entry names the entry that its author saw last; of several that name the same one the lowest number counts, and the
others were refused. So for every standing of the log exactly one move wins, on a SQLite file and on a server alike.

The alias follows the log: whoever moved it reads the log again and moves it on if there is a later entry. The last
write of the alias is therefore that of the last move, once every process that was moving is done. A process that is
killed between its entry and the alias has won: the next command finishes its move. One gap stays: a process that halts
just before it moves the alias, wakes when a later move is over, and is killed before it has read the log again leaves
an older champion, which then counts as set by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from revelator.errors import ArtifactError, Conflict
from revelator.registry import CHAMPION, find_champion, open_client, resolve, store_errors

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

Kind = Literal["promotion", "rollback"]
SETTLED = "settled"


@dataclass(frozen=True)
class Move:
    """A valid entry of the log. `replaced` is the champion that its author saw, None before the first one."""

    number: int
    kind: Kind
    version: int
    replaced: int | None
    settled: bool


@dataclass(frozen=True)
class Standing:
    """The valid `moves` in order, and the version that the alias names (None: there is no champion)."""

    moves: tuple[Move, ...]
    champion: int | None

    @property
    def number(self) -> int:
        return self.moves[-1].number if self.moves else 0

    @property
    def previous(self) -> int | None:
        """The version to which a rollback returns: a promotion pushes a version on the stack, a rollback pops one."""
        stack: list[int] = []
        for move in self.moves:
            if move.kind == "rollback":
                stack.pop()
                continue
            if move.replaced is not None and stack[-1:] != [move.replaced]:
                stack.append(move.replaced)  # set by hand, or before there was a log
            stack.append(move.version)
        return stack[-2] if len(stack) > 1 and stack[-1] == self.champion else None


def read_standing(name: str) -> Standing:
    """Finishes a move that a killed process left behind, and reads the log and the champion."""
    with store_errors():
        moves = _read_moves(name)
        if moves and not moves[-1].settled:
            _settle(name)
            moves = _read_moves(name)
    now = find_champion(name)
    return Standing(moves, None if now is None else now.version)


def move(name: str, version: int, seen: Standing, kind: Kind = "promotion") -> Move:
    """Makes `version` champion. Raises Conflict, and changes nothing, if another process moved the alias since
    `seen`."""
    tags = {"after": str(seen.number), "kind": kind, "version": str(version), "replaced": str(seen.champion or "none")}
    with store_errors():
        number = _append(name, version, tags)
        moves = _read_moves(name)
        won = next((m for m in moves if m.number == number), None)
        if won is None:
            first = next(m for m in moves if m.number > seen.number)
            raise Conflict(
                f"another {first.kind} came first and made version {first.version} champion; nothing was moved here",
                where=f"registered model {name}",
                hint="run the command again: it then looks at the new champion",
            )
        _settle(name)
    return won


def roll_back(name: str) -> Move:
    """Moves the alias back to the version that the champion replaced. Raises ArtifactError when none is recorded."""
    seen = read_standing(name)
    back = seen.previous
    if back is None:
        what = f"no version is recorded that champion {seen.champion} replaced" if seen.champion else "no champion yet"
        raise ArtifactError(
            what,
            where=f"registered model {name}",
            hint="`revelator model promote --version N` judges a version that you name",
        )
    return move(name, resolve(name, back).version, seen, "rollback")


def _name_log(name: str) -> str:
    return f"{name}-promotions"


def _append(name: str, version: int, tags: dict[str, str]) -> int:
    """Appends an entry and returns its number; the first entry creates the log."""
    from mlflow.exceptions import MlflowException

    store = open_client()
    if not _read_entries(name):
        try:
            store.create_registered_model(
                _name_log(name), description=f"Who became champion of {name}: a version a move."
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # of two first ones the other was faster
                raise
    return int(store.create_model_version(_name_log(name), source=f"models:/{name}/{version}", tags=tags).version)


def _read_entries(name: str) -> list[ModelVersion]:
    entries = open_client().search_model_versions(f"name='{_name_log(name)}'")
    return sorted(entries, key=lambda entry: int(entry.version))


def _read_moves(name: str) -> tuple[Move, ...]:
    """Lists the valid entries: each names the valid entry before it."""
    moves: list[Move] = []
    for entry in _read_entries(name):
        tags = entry.tags
        if int(tags["after"]) == (moves[-1].number if moves else 0):
            replaced = None if tags["replaced"] == "none" else int(tags["replaced"])
            kind: Kind = "rollback" if tags["kind"] == "rollback" else "promotion"
            moves.append(Move(int(entry.version), kind, int(tags["version"]), replaced, SETTLED in tags))
    return tuple(moves)


def _settle(name: str) -> None:
    """Moves the alias to the version of the last move, again if another move was added meanwhile."""
    store, last = open_client(), _read_moves(name)[-1]
    while True:
        store.set_model_version_tag(name, str(last.version), f"{CHAMPION}_replaced", str(last.replaced or "none"))
        store.set_registered_model_alias(name, CHAMPION, str(last.version))
        newest = _read_moves(name)[-1]
        if newest.number == last.number:
            store.set_model_version_tag(_name_log(name), str(last.number), SETTLED, "yes")
            return
        last = newest
