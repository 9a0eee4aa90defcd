"""`revelator model agent`: logs the whole system as a model of MLflow, for its servers and its evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import click

from revelator import registry
from revelator.errors import ConfigError
from revelator.options import AS_JSON, HOME, PATH
from revelator.registry import CHAMPION, NAME, TRACKING_URI
from serving.agent.parts import AGENT, Parts, log_agent


@click.command()
@click.argument("adapter", default=CHAMPION)
@click.option("--index", type=PATH, help="The index that it searches.  [default: as of `revelator serve`]")
@click.option("--url", metavar="HOST:PORT", help="Hold neither: ask the service of this gRPC address.")
@HOME
@AS_JSON
def agent(adapter: str, index: Path | None, url: str | None, home: Path, as_json: bool) -> None:
    """Log the whole system as an MLflow agent: a version over an index, with the settings that --home remembers.

    ADAPTER is a version number, `latest`, an alias (default: champion), or `base` for the embedded base. The agent is
    asked a question, and then becomes the next version of the registered model NAME-agent. With --url, or with
    REVELATOR_URL where it is loaded, it asks a running service, and opens nothing itself.

    \b
    Examples:
      revelator model agent --index runs/indexes/mine
      revelator model agent 3 --index runs/indexes/mine --json
      revelator model agent --url 127.0.0.1:8001
    """
    if url and index:
        raise ConfigError("a service searches its own index", where="--index", hint="give one of --index and --url")
    store = registry.connect(home)
    model_id, number = log_agent(Parts(url=url) if url else collect_parts(adapter, index, home))
    uri = f"models:/{AGENT}/{number}"
    if as_json:
        return click.echo(json.dumps({"name": AGENT, "version": number, "uri": uri, "model_id": model_id}))
    click.echo(f"{uri}\nnext: {TRACKING_URI}={store} mlflow models serve -m {uri} --env-manager local")


def collect_parts(adapter: str, index: Path | None, home: Path) -> Parts:
    """Fetches the version, and finds its settings. Raises ConfigError for what cannot be packed."""
    from serving.home.configure import configure

    config = configure(home, index=index)
    if config.sources:
        hint = "let it ask a running service: --url HOST:PORT"
        raise ConfigError("a model holds no file of sources", where=str(config.sources), hint=hint)
    if adapter == "base":
        return Parts(config=config)
    version = registry.resolve(NAME, adapter)
    return Parts(version, registry.fetch(version, home), config)
