"""Who is champion: of promotions at the same time one wins, whatever the store; what is moved can be moved back."""

import multiprocessing
import subprocess
import sys
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from revelator import promotions, registry
from revelator.errors import ArtifactError, Conflict
from tests.revelator import kill_moves

PATIENCE = 120  # seconds until a process that does not come fails the test


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def registered(home: Path, name: str, versions: int) -> None:
    """Versions without files, which is all that a promotion looks at."""
    registry.connect(home)
    registry.open_client().create_registered_model(name)
    for _ in range(versions):
        registry.open_client().create_model_version(name, source="s3://bucket/adapter")


def promote(name: str, version: int) -> promotions.Move:
    return promotions.move(name, version, promotions.read_standing(name))


def contend(home: Path, name: str, version: int, rounds: int, start: Barrier, results: Queue) -> None:
    """One of two processes: promotes `version` again and again, each time at the same moment as the other."""
    registry.connect(home)
    for _ in range(rounds):
        seen = promotions.read_standing(name)
        start.wait(PATIENCE)
        try:
            promotions.move(name, version, seen)
            results.put((version, "won"))
        except Conflict as conflict:
            results.put((version, conflict.message))
        start.wait(PATIENCE)


@pytest.mark.parametrize(("kind", "rounds"), [("sqlite", 6), ("server", 3)])
def test_of_two_processes_that_promote_at_once_one_wins_and_the_other_says_so(
    kind: str, rounds: int, home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "server":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("tracking_server"))
    registered(home, f"race-{kind}", 2)
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=contend, daemon=True, args=(home, f"race-{kind}", version, rounds, start, results))
        for version in (1, 2)
    ]
    for process in processes:
        process.start()
    for number in range(1, rounds + 1):
        start.wait(PATIENCE)
        outcome = dict(results.get(timeout=PATIENCE) for _ in processes)
        winner = [version for version, said in outcome.items() if said == "won"]
        assert len(winner) == 1, outcome
        assert f"made version {winner[0]} champion; nothing was moved" in outcome[3 - winner[0]]
        champion = registry.find_champion(f"race-{kind}")
        assert champion and champion.version == winner[0]
        assert len(promotions.read_standing(f"race-{kind}").moves) == number
        start.wait(PATIENCE)
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


def test_a_rollback_returns_to_what_was_replaced_and_a_second_one_goes_further_back(home: Path) -> None:
    registered(home, "back", 3)
    for version in (1, 2, 3):
        promote("back", version)
    first, second = promotions.roll_back("back"), promotions.roll_back("back")
    assert [(m.version, m.replaced) for m in (first, second)] == [(2, 3), (1, 2)]
    champion = registry.find_champion("back")
    assert champion and champion.version == 1
    assert [m.kind for m in promotions.read_standing("back").moves] == ["promotion"] * 3 + ["rollback"] * 2
    promote("back", 3)
    assert promotions.roll_back("back").version == 1


def test_a_rollback_without_a_version_to_return_to_is_refused(home: Path) -> None:
    registered(home, "first", 2)
    with pytest.raises(ArtifactError, match="no champion yet"):
        promotions.roll_back("first")
    promote("first", 1)
    with pytest.raises(ArtifactError, match="no version is recorded that champion 1 replaced"):
        promotions.roll_back("first")
    promote("first", 2)
    promotions.roll_back("first")
    with pytest.raises(ArtifactError, match="no version is recorded that champion 1 replaced"):
        promotions.roll_back("first")


def test_a_champion_that_was_set_by_hand_is_what_the_next_promotion_replaces(home: Path) -> None:
    registered(home, "hand", 3)
    promote("hand", 1)
    registry.open_client().set_registered_model_alias("hand", "champion", "2")
    with pytest.raises(ArtifactError, match="no version is recorded that champion 2 replaced"):
        promotions.roll_back("hand")
    assert promote("hand", 3).replaced == 2
    assert promotions.roll_back("hand").version == 2


def test_a_move_whose_process_was_killed_before_the_alias_is_finished_by_the_next_look(home: Path) -> None:
    registered(home, "killed", 2)
    promote("killed", 1)
    tags = {"after": "1", "kind": "promotion", "version": "2", "replaced": "1"}
    registry.open_client().create_model_version("killed-promotions", source="models:/killed/2", tags=tags)
    before = registry.find_champion("killed")
    assert before and before.version == 1
    assert promotions.read_standing("killed").champion == 2
    assert promotions.roll_back("killed").version == 1


@pytest.mark.timeout(600)
def test_moves_killed_at_random_moments_leave_one_champion_that_the_record_agrees_with(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    registry.connect(own)
    registered(own, "moved", 2)
    promote("moved", 1)
    command = [sys.executable, kill_moves.__file__, str(own), "moved", "10", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(done.stdout.splitlines()) == 10


def test_a_promotion_judged_against_an_older_champion_moves_nothing(home: Path) -> None:
    registered(home, "late", 3)
    seen = promotions.read_standing("late")
    promote("late", 1)
    promote("late", 2)
    with pytest.raises(Conflict, match="another promotion came first and made version 1 champion"):
        promotions.move("late", 3, seen)
    champion = registry.find_champion("late")
    assert champion and champion.version == 2
