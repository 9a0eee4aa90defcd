"""The inspector: a page on which plans are watched, mended, run again and compared, and an OpenAI-compatible route."""

from serving.inspector.app import create_app
from serving.inspector.inquiry import Server
from serving.inspector.runs import Runs

__all__ = ["Runs", "Server", "create_app"]
