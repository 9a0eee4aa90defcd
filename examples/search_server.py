"""A web search for trials: an index behind the JSON API that SearXNG has, on this machine alone.

python examples/search_server.py runs/blend/indexes/web --port 8899
curl '127.0.0.1:8899/search?q=who+wrote+ost&format=json'
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from serving.retrieval import Index

PER_PAGE = 10


def make_app(index: Index) -> Starlette:
    async def search(request: Request) -> JSONResponse:
        asked = request.query_params.get("q", "")
        found = await asyncio.to_thread(index.search, asked, PER_PAGE) if asked else []
        hits = [{"url": f"http://documents.invalid/{p.id}", "title": p.title, "content": p.text} for p in found]
        return JSONResponse({"query": asked, "results": hits})

    return Starlette(routes=[Route("/search", search)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--port", type=int, default=8899)
    given = parser.parse_args()
    uvicorn.run(make_app(Index.open(given.index)), host="127.0.0.1", port=given.port, log_level="warning")
