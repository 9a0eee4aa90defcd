"""Novels, films, albums and songs, and who made them when."""

from __future__ import annotations

from data_gen.world.graph import Entity, Value, pick_adult
from data_gen.world.making import Making
from data_gen.world.values import measure, money, number, year


def add_works(m: Making) -> None:
    rng, graph = m.rng, m.graph
    for type, makers, relation in (
        ("novel", m.people_who("novelist", "poet", "historian"), "author"),
        ("film", m.people_who("film director"), "director"),
    ):
        pool = rng.sample(makers, min(len(makers), max(2, len(graph.by_type[type]) // 2)))
        for work in graph.by_type[type]:
            maker = rng.choice(pool)
            work.birth = min(2023, maker.birth + rng.randrange(24, 58))
            graph.add(work, relation, maker)
            if m.some(0.5):
                graph.add(work, "setting", m.any("city"))
            if m.some(0.3):
                graph.add(work, "work language", rng.choice(m.languages))
            (_film if type == "film" else _novel)(m, work, maker)

        _sequels(m, type, relation)
    _debuts(m)


def _sequels(m: Making, type: str, maker: str) -> None:
    """Of two works of one maker the later may continue the earlier."""
    by_maker: dict[int, list[Entity]] = {}
    for work in sorted(m.graph.by_type[type], key=lambda w: (w.birth, w.id)):
        found = m.graph.one(work, maker)
        works = by_maker.setdefault(found.id if found else -1, [])
        if works and works[-1].birth < work.birth and m.some(0.6):
            m.graph.add(works[-1], "sequel", work)
        works.append(work)


def _debuts(m: Making) -> None:
    first: dict[int, Entity] = {}
    for film in sorted(m.graph.by_type["film"], key=lambda w: (w.birth, w.id)):
        for fact in m.graph.facts[film.id].get("cast", ()):
            assert isinstance(fact.tail, int)
            first.setdefault(fact.tail, film)
    for actor, film in first.items():
        if m.some(0.7):
            m.graph.add(m.graph.entities[actor], "debut film", film)


def _novel(m: Making, novel: Entity, author: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(novel, "publication year", year(novel.birth))
    publisher = m.any("publisher")
    graph.add(novel, "novel publisher", publisher)
    if m.some(0.4) and not any(f.second == publisher.id for f in graph.facts[author.id].get("publisher novel", ())):
        graph.add(author, "publisher novel", novel, publisher)
    graph.add(novel, "pages", number(rng.randrange(90, 900)))
    graph.add(novel, "protagonist", Value(m.names.new("person")))


def _film(m: Making, film: Entity, director: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(film, "release year", year(film.birth))
    writer = pick_adult(rng, m.people_who("screenwriter"), film.birth)
    graph.add(film, "screenwriter", director if writer is None or m.some(0.25) else writer)
    for relation, occupation in (("film producer", "film producer"), ("composer", "composer")):
        if m.some(0.5):
            graph.add(film, relation, rng.choice(m.people_who(occupation)))
    actors = m.people_who("actor")
    for actor in rng.sample(actors, min(len(actors), rng.randrange(1, 5))):
        graph.add(film, "cast", actor)
        graph.add(film, "character", Value(m.names.new("person")), actor)
        if not any(f.second == director.id for f in graph.facts[actor.id].get("joint film", ())) and m.some(0.3):
            graph.add(actor, "joint film", film, director)
    graph.add(film, "running time", measure(rng.randrange(61, 215), "minutes"))
    graph.add(film, "gross", money(rng, 200, 400000))
    graph.add(film, "film country", m.any("country"))
    companies = graph.by_type["company"]
    studios = [c for c in companies if c.noun == "studio"] or companies
    graph.add(film, "studio", rng.choice(studios))
    if m.some(0.5):
        graph.add(film, "distributor", rng.choice(companies))
    if m.some(0.35):
        graph.add(film, "basis", m.any("novel"))


def add_music(m: Making) -> None:
    rng, graph = m.rng, m.graph
    singers = m.people_who("singer")
    labels = [c for c in graph.by_type["company"] if c.noun == "label"] or graph.by_type["company"]
    for band in graph.by_type["band"]:
        members = rng.sample(singers, min(len(singers), rng.randrange(2, 5)))
        band.birth = max(one.birth for one in members) + rng.randrange(18, 30)
        graph.add(band, "founding year", year(band.birth))
        graph.add(band, "home city", m.any("city"))
        graph.add(band, "label", rng.choice(labels))
        for member in members:
            graph.add(band, "members", member)
        graph.add(band, "lead singer", members[0])
    for album in graph.by_type["album"]:
        _record(m, album, labels)
        if m.some(0.6):
            graph.add(album, "album producer", m.any("person"))
        graph.add(album, "sales", number(rng.randrange(2, 9000) * 1000))
    for song in graph.by_type["song"]:
        source = m.any("album") if m.some(0.75) else None
        writer = rng.choice(m.people_who("songwriter"))
        if source and (act := graph.one(source, "performer")):
            song.birth = source.birth
            graph.add(song, "album", source)
            graph.add(song, "performer", act)
            graph.add(song, "release year", year(song.birth))
        else:
            _record(m, song, [])
        graph.add(song, "songwriter", writer)
        graph.add(song, "song length", measure(rng.randrange(95, 600), "seconds"))


def _record(m: Making, work: Entity, labels: list[Entity]) -> None:
    rng, graph = m.rng, m.graph
    performer = m.any("band") if m.some(0.75) else rng.choice(m.people_who("singer"))
    start = performer.birth if performer.type == "band" else performer.birth + 20
    work.birth = min(2023, start + rng.randrange(1, 18))
    graph.add(work, "performer", performer)
    graph.add(work, "release year", year(work.birth))
    if labels:
        graph.add(work, "label", rng.choice(labels))
