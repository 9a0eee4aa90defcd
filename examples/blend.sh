#!/usr/bin/env bash
# Questions that need two of three sources: a text index, a graph, and a web search; and a model that selects among them.
#
#   examples/blend.sh                 90 of the 592 questions; training takes some 20 minutes on one core
#   SAMPLE=600 examples/blend.sh      all of them
#
# Each type of thing in the world belongs to one source; three in ten things stand in a second one or in all three. No
# source holds both steps of a question. The base learns from another world to select sources. Every system is then asked
# with all sources, with one left out (AtomR, table 4), with one alone, and with each way to select. Run it from the
# repository's root.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
export REVELATOR_HOME=runs/blend-home REVELATOR_WORLD=runs/blend-train
BLEND=runs/blend SAMPLE=${SAMPLE:-90}

[ -f $REVELATOR_WORLD/manifest.json ] ||
  revelator data build data_gen/configs/worlds/mixed.yaml --size 3000 --seed 71 --out $REVELATOR_WORLD
[ -f runs/sets/blend/manifest.json ] || revelator data build data_gen/configs/select.yaml --out runs/sets/blend
[ -f $BLEND/manifest.json ] ||
  revelator data build data_gen/configs/worlds/blend.yaml --out runs/blend-world
[ -f $BLEND/adapter/manifest.json ] || revelator train select --set runs/sets/blend --out $BLEND/adapter
for source in text web; do
  [ -f $BLEND/indexes/$source/manifest.json ] ||
    revelator index build $BLEND/$source.jsonl --out $BLEND/indexes/$source
done
[ -d $BLEND/graph ] || revelator index build $BLEND/triples.tsv --kind graph --out $BLEND/graph

python examples/search_server.py $BLEND/indexes/web --port 8899 &
trap 'kill $!' EXIT
curl --silent --retry 30 --retry-connrefused --retry-delay 1 '127.0.0.1:8899/search?q=ready&format=json' >/dev/null

revelator eval run evaluation/configs/blend.yaml --sample "$SAMPLE" --out runs/evaluations/blend
revelator eval report runs/evaluations/blend/* --out runs/evaluations/blend-report
