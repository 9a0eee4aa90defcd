"""`revelator model push`: a version, or an export of one, as a repository of the model hub, with a generated card.

What is uploaded says nothing of this machine: paths become names, and the manifest is written for the files as they
are uploaded. All files go into one commit, so that a push that fails changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from evaluation.publish.card import CARD, CONFIG, find_hub_base, read_facts, write_card
from evaluation.publish.export import require_folder
from revelator.artifact import ADAPTER_CONFIG, DEFAULT_BASE, GGUF, MERGED, split_revision, verify_files
from revelator.endpoints import check_key, mask_key
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.folders import MANIFEST
from revelator.options import AS_JSON, HOME
from revelator.registry import CHAMPION
from serving.models.adapters import Adapter, find_adapter

TOKEN_VARIABLE = "HF_TOKEN"
TOKENS_PAGE = "https://huggingface.co/settings/tokens"
PLACES = ("out", "sets", "base", "adapter", "world")  # fields of a training's configuration that may be paths
MESSAGE_CHARACTERS = 300  # of what the Hub says

Files = Mapping[str, Path | bytes]  # by name in the repository


@click.command()
@click.argument("name", default=CHAMPION)
@click.option("--to", "repo", required=True, metavar="ORG/REPO", help="Repository of the Hub; made if there is none.")
@click.option("--private", is_flag=True, help="Make it private; a public one that is there already is refused.")
@click.option("--base", metavar="ORG/NAME", help="The base's id on the Hub, of an adapter trained on a folder.")
@click.option("--dry-run", is_flag=True, help="Show files and card; send nothing. Needs no token.")
@HOME
@AS_JSON
def push(name: str, repo: str, private: bool, base: str | None, dry_run: bool, home: Path, as_json: bool) -> None:
    """Publish a version on the model hub, with a card.

    NAME is a folder, a version number, `latest`, an alias (default: champion), or the folder of an export. The card has
    the figures of the promotion gate and of reports, data sets with their licences, base and prompts; that of an export
    is the one in its folder. The token is read from HF_TOKEN alone, and must allow to write to ORG. HF_ENDPOINT names
    another Hub. Files of the repository that this version does not have stay.

    \b
    Examples:
      revelator model push --to my-org/revelator-qwen --dry-run
      HF_TOKEN=… revelator model push --to my-org/revelator-qwen --private
      revelator model push 3 --to my-org/revelator-smollm2 --base HuggingFaceTB/SmolLM2-135M-Instruct
      revelator model push runs/exports/gguf --to my-org/revelator-gguf
    """
    _check_repo(repo)
    files = prepare_export(Path(name)) or prepare_adapter(find_adapter(name, home), repo, base)
    sizes = {file: len(body) if isinstance(body, bytes) else body.stat().st_size for file, body in files.items()}
    said: dict[str, Any] = {"repo": repo, "files": sizes, "private": private, "pushed": False}
    card = _read(files[CARD]).decode()
    if dry_run:
        if as_json:
            return click.echo(json.dumps(said | {"card": card}))
        width = max(map(len, sizes))
        listed = "\n".join(f"  {file:{width}}  {size:>13,}" for file, size in sorted(sizes.items()))
        return click.echo(f"{repo}, nothing is sent:\n{listed}\n\n{CARD}:\n\n{card}")
    said |= {"pushed": True, **upload(files, repo, private=private, token=read_token())}
    click.echo(json.dumps(said) if as_json else f"{said['url']}: {len(sizes)} files in commit {said['commit']}")


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
        named = repo.count("/") == 1
    except HFValidationError:
        named = False
    if not named:
        raise ConfigError("this is no name of a repository", where=f"--to {repo}", hint="give ORG/REPO")


def read_token() -> str:
    """The token of the environment. Raises ConfigError without one; no message holds it."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        hint = f"export {TOKEN_VARIABLE}=… with a token that may write ({TOKENS_PAGE}), or look first: --dry-run"
        raise ConfigError("the Hub takes no files without a token", where=TOKEN_VARIABLE, hint=hint)
    return check_key(token, TOKEN_VARIABLE)


def prepare_export(folder: Path) -> Files | None:
    """The files of an export; None for a folder that is none."""
    for kind in (MERGED, GGUF):
        if kind.find_manifest(folder):
            manifest = kind.read_manifest(folder, verify=True)
            manifest["base"]["name"] = _shorten(manifest["base"]["name"])
            files: dict[str, Path | bytes] = {name: folder / name for name in manifest["files"]}
            return files | {MANIFEST: _spell(manifest)}
    return None


def prepare_adapter(adapter: Adapter, repo: str, base: str | None) -> Files:
    """The files of an adapter, as others can load them: its base is named by its id on the Hub. Raises ConfigError for
    a base that only this machine has."""
    folder = require_folder(adapter)
    manifest, facts = verify_files(folder), read_facts(adapter)
    hub_base = find_hub_base(facts, base)
    if hub_base is None and manifest.base_name != DEFAULT_BASE:
        message = f"the adapter was trained on the folder {manifest.base_name}, which nobody else has"
        raise ConfigError(message, where=str(folder), hint="name the base's id on the Hub: --base ORG/NAME")
    named = hub_base or DEFAULT_BASE
    files: dict[str, Path | bytes] = {name: folder / name for name in manifest.files if name != CARD}
    if ADAPTER_CONFIG in files:
        peft = json.loads(_read(files[ADAPTER_CONFIG]))
        id, revision = split_revision(named)
        files[ADAPTER_CONFIG] = _spell(peft | {"base_model_name_or_path": id, "revision": revision})
    if CONFIG in files:
        values = yaml.safe_load(_read(files[CONFIG]))
        short = {name: _shorten(values[name]) for name in PLACES if values.get(name)}
        files[CONFIG] = yaml.safe_dump(values | short | {"base": named}, sort_keys=False).encode()
    changed = {name: body for name, body in files.items() if isinstance(body, bytes)}
    digests = manifest.files | {name: hashlib.sha256(body).hexdigest() for name, body in changed.items()}
    sizes = manifest.sizes | {name: len(body) for name, body in changed.items()}
    about = vars(manifest) | {"base_name": named}
    about |= {"files": {name: digests[name] for name in files}, "sizes": {name: sizes[name] for name in files}}
    title = repo.partition("/")[2]
    return files | {MANIFEST: _spell(about), CARD: write_card(facts, "adapter", title=title, base=base).encode()}


def _read(body: Path | bytes) -> bytes:
    return body if isinstance(body, bytes) else body.read_bytes()


def _spell(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _shorten(place: Any) -> Any:
    """The last part of a path, or of each in a list; a name stays."""
    if isinstance(place, list):
        return [_shorten(one) for one in place]
    return Path(place).name if Path(str(place)).is_absolute() else place


def upload(files: Files, repo: str, *, private: bool, token: str) -> dict[str, str]:
    """Makes the repository if there is none, and uploads the files in one commit. Returns its address and the commit.

    Raises ConfigError where the Hub refuses the token, or the repository is public and `private` is asked for;
    ArtifactError for what it says of the files, Unavailable when it does not answer.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    hub = HfApi(token=token)
    with _explain(repo, hub.endpoint, token):
        url = hub.create_repo(repo, private=private or None, exist_ok=True)
        if private and not hub.repo_info(repo).private:
            hint = "make it private on its page, or name another one"
            raise ConfigError("the repository is public; nothing was uploaded", where=repo, hint=hint)
        added = [CommitOperationAdd(name, body) for name, body in sorted(files.items())]
        done = hub.create_commit(repo, added, commit_message="Upload a version of the revelator")
    return {"url": str(url), "commit": str(done.oid)}


@contextmanager
def _explain(repo: str, endpoint: str, token: str) -> Iterator[None]:
    """Turns the errors of huggingface_hub into ours, without the token."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except (HfHubHTTPError, httpx2.HTTPError, OfflineModeIsEnabled, RuntimeError, ValueError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else error  # of a large file's upload
        if isinstance(cause, HfHubHTTPError):
            raise _explain_refusal(cause, repo, token) from None
        said = mask_key(" ".join(str(cause).split()), token)[:MESSAGE_CHARACTERS]
        if isinstance(cause, httpx2.HTTPError | OfflineModeIsEnabled):
            hint = "is there a network, and is HF_ENDPOINT right? HF_HUB_OFFLINE must not be set"
            raise Unavailable(f"the Hub does not answer: {said}", where=endpoint, hint=hint) from None
        raise ArtifactError(f"the upload failed: {said}", where=repo) from None


def _explain_refusal(error: Any, repo: str, token: str) -> RevelatorError:
    status = error.response.status_code
    said = mask_key(" ".join((error.server_message or str(error)).split()), token)[:MESSAGE_CHARACTERS]
    org = repo.partition("/")[0]
    if status == 401:
        hint = f"make a new one that may write ({TOKENS_PAGE}) and export it as {TOKEN_VARIABLE}"
        return ConfigError(f"the Hub refuses the token (401): {said}", where=TOKEN_VARIABLE, hint=hint)
    if status == 403:
        hint = f"take a token that may write to {org}, or name a repository of your own: --to YOU/REPO"
        return ConfigError(f"this token may not write there (403): {said}", where=repo, hint=hint)
    if status >= 500 or status == 429:
        return Unavailable(f"the Hub answered {status}: {said}", where=repo, hint="try again later")
    return ArtifactError(f"the Hub answered {status}: {said}", where=repo, hint="nothing was committed")
