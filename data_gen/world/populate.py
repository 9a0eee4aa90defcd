"""Fills a graph: the entities and their names, then what holds between them, in an order of years that could be."""

from __future__ import annotations

import random
from collections import defaultdict

from data_gen.world.graph import Entity, Value, WorldGraph, load_relations
from data_gen.world.maker import LAST_YEAR, GraphMaker, make_measure, make_year
from data_gen.world.names import Names, load_table

SMALLEST = 300  # entities: fewer give no pairs for some shapes


def populate(size: int, rng: random.Random, taken: set[str]) -> WorldGraph:
    """A graph of about `size` entities whose names are not in `taken` (they are added to it)."""
    return _Population(rng, Names(rng, taken)).make(max(size, SMALLEST))


class _Population(GraphMaker):
    """What depends on more than `facts.yaml` says."""

    def make(self, size: int) -> WorldGraph:
        for type, share in load_table("facts")["shares"].items():
            for _ in range(max(4, round(size * share))):
                self.create_entity(type)
        self._add_place_facts()
        self._add_life_facts()
        self._add_family_facts()
        self._add_organisation_facts()
        self._add_book_and_film_facts()
        self._add_music_facts()
        self._add_event_facts()
        self._add_career_facts()
        _add_inverses(self.graph)
        _write_titles(self.graph)
        return self.graph

    def _add_place_facts(self) -> None:
        """Cities, countries and rivers, and the languages of the world."""
        rng, graph = self.rng, self.graph
        countries = graph.by_type["country"]
        self.languages = [Value(self.names.make_name("language")) for _ in range(max(3, len(countries) * 2 // 3))]
        cities: dict[int, list[tuple[int, Entity]]] = defaultdict(list)
        for index, city in enumerate(graph.by_type["city"]):
            country = countries[index] if index < len(countries) else rng.choice(countries)
            people = int(10 ** rng.uniform(3.3, 6.7))
            cities[country.id].append((people, city))
            graph.add(city, "country", country)
            graph.add(city, "city population", make_measure(people))
            self.add_facts(city, "city")
            self._add_city_facts(city)
        for country in countries:
            self._add_country_facts(country, cities[country.id])
        for river in graph.by_type["river"]:
            self.add_facts(river, "river")
            if self.draw_chance(0.5):
                graph.add(river, "mouth", self.pick("city"))
            elif (other := self.pick("river")) is not river:
                graph.add(river, "tributary", other)

    def _add_city_facts(self, city: Entity) -> None:
        graph, twin = self.graph, self.pick("city")
        is_free = self.draw_chance(0.4) and twin is not city
        if is_free and not graph.find_first(city, "twin city") and not graph.find_first(twin, "twin city"):
            graph.add(city, "twin city", twin)
            graph.add(twin, "twin city", city)
        for other in self.rng.sample(graph.by_type["city"], 2):
            if not self.is_stated(city, "distance", other) and other is not city:
                self.add_mutual_fact(city, other, "distance", make_measure(self.rng.randrange(12, 1900), "km"))

    def _add_country_facts(self, country: Entity, cities: list[tuple[int, Entity]]) -> None:
        rng, graph = self.rng, self.graph
        largest = max(cities)[1]
        graph.add(country, "capital", largest if self.draw_chance(0.5) else rng.choice(cities)[1])
        graph.add(country, "largest city", largest)
        self.add_facts(country, "nation")
        people = int(10 ** rng.uniform(5.7, 8.1)) + sum(people for people, _ in cities)
        graph.add(country, "country population", make_measure(people))
        self.add_facts(country, "country")
        near = {f.tail for f in graph.facts[country.id].get("neighbours", ())}
        others = rng.sample(graph.by_type["country"], 2)
        for other in others[: rng.randrange(1, 3)]:
            if other is not country and other.id not in near:
                graph.add(country, "neighbours", other)
                graph.add(other, "neighbours", country)
                if self.draw_chance(0.6):
                    self.add_mutual_fact(country, other, "border river", self.pick("river"))

    def _add_life_facts(self) -> None:
        """Dates, places, citizenship, language, height and teacher of each person."""
        rng, graph = self.rng, self.graph
        for person in graph.by_type["person"]:
            home = self.pick("city")
            graph.add(person, "birth date", self.draw_date(person.birth))
            graph.add(person, "birthplace", home)
            country = graph.find_first(home, "country") if self.draw_chance(0.7) else self.pick("country")
            assert country is not None
            graph.add(person, "citizenship", country)
            if person.birth < 1945 and self.draw_chance(0.7):
                graph.add(person, "death date", self.draw_date(person.birth + rng.randrange(61, 75)))
                near = [f.second for f in graph.facts[home.id].get("distance", ()) if f.second is not None]
                place = graph.entities[rng.choice(near)] if near and self.draw_chance(0.5) else self.pick("city")
                graph.add(person, "deathplace", home if self.draw_chance(0.15) else place)
                if self.draw_chance(0.3):
                    graph.add(person, "burial place", place if self.draw_chance(0.4) else self.pick("city"))
            self.add_facts(person, "person")

    def _add_family_facts(self) -> None:
        """Marries people of like age, and gives children their parents."""
        rng, graph = self.rng, self.graph
        people = sorted(graph.by_type["person"], key=lambda p: (p.birth, p.id))
        couples: list[tuple[Entity, Entity]] = []
        single = {p.id for p in people}
        for index, person in enumerate(people):
            near = [p for p in people[index + 1 : index + 9] if p.gender != person.gender and p.id in single]
            if person.id in single and near and near[0].birth - person.birth < 14 and self.draw_chance(0.65):
                single -= {person.id, near[0].id}
                couples.append((person, near[0]))
                when = make_year(near[0].birth + rng.randrange(21, 36))
                for one, other in ((person, near[0]), (near[0], person)):
                    graph.add(one, "spouse", other)
                    graph.add(one, "wedding year", when, other)
        for child in people:
            if couples and self.draw_chance(0.5):
                fitting = [c for c in rng.choices(couples, k=12) if 20 <= child.birth - c[1].birth <= 35]
                for parent in fitting[0] if fitting else ():
                    graph.add(child, "mother" if parent.gender == "she" else "father", parent)

    def _add_career_facts(self) -> None:
        """Where people studied and worked, and the prizes that they won."""
        rng, graph = self.rng, self.graph
        for person in graph.by_type["person"]:
            at = make_year(person.birth + rng.randrange(22, 50))
            if self.draw_chance(0.5):
                university = self.pick("university")
                graph.add(person, "alma mater", university)
                graph.add(person, "subject studied", Value(rng.choice(self.words["subjects"])), university)
            if self.draw_chance(0.4):
                employer = self.pick(rng.choice(("company", "company", "university", "publisher")))
                graph.add(person, "employer", employer)
                graph.add(person, "joining year", at, employer)
                if self.draw_chance(0.6):
                    graph.add(person, "position", Value(rng.choice(self.words["positions"])), employer)
            if self.draw_chance(0.3):
                prize = self.pick("prize")
                graph.add(person, "award", prize)
                graph.add(person, "prize year", make_year(person.birth + rng.randrange(30, 60)), prize)

    def _add_organisation_facts(self) -> None:
        """Founders and facts of companies, publishers and universities; sets the year of each founding."""
        rng, graph = self.rng, self.graph
        founders = self.list_people("entrepreneur", "engineer", "politician", "chemist", "publisher", "architect")
        for type in ("company", "publisher", "university"):
            for one in graph.by_type[type]:
                founder = rng.choice(founders)
                one.birth = founder.birth + rng.randrange(22, 58)
                graph.add(one, "company founder", founder)
                graph.add(one, "founding year", make_year(one.birth))
                self.add_facts(one, type)
                if one.noun == "company":
                    graph.add(one, "industry", Value(rng.choice(self.words["industries"])))

    def _add_event_facts(self) -> None:
        """Festivals, battles and prizes."""
        rng, graph = self.rng, self.graph
        for festival in graph.by_type["festival"]:
            founder = self.pick("person")
            graph.add(festival, "festival city", self.pick("city"))
            graph.add(festival, "festival year", make_year(founder.birth + rng.randrange(22, 58)))
            graph.add(festival, "festival founder", founder)
            self.add_facts(festival, "festival")
        generals = self.list_people("general", "politician")
        for battle in graph.by_type["battle"]:
            sides = rng.sample(graph.by_type["country"], 2)
            leaders = rng.sample(generals if len(generals) > 1 else graph.by_type["person"], 2)
            graph.add(battle, "battle year", make_year(max(p.birth for p in leaders) + rng.randrange(25, 40)))
            graph.add(battle, "battle place", self.pick("city"))
            graph.add(battle, "winner", rng.choice(sides))
            graph.add(battle, "casualties", make_measure(rng.randrange(90, 42000)))
            for leader, side in zip(leaders, sides, strict=True):
                graph.add(battle, "commander", leader, side)
        for prize in graph.by_type["prize"]:
            self.add_facts(prize, "prize")

    def _add_book_and_film_facts(self) -> None:
        """Novels and films, with their sequels and debuts; sets the year of each."""
        rng, graph = self.rng, self.graph
        for type, makers, relation, state in (
            ("novel", self.list_people("novelist", "poet", "historian"), "author", self._add_novel_facts),
            ("film", self.list_people("film director"), "director", self._add_film_facts),
        ):
            pool = rng.sample(makers, min(len(makers), max(2, len(graph.by_type[type]) // 2)))
            for work in graph.by_type[type]:
                maker = rng.choice(pool)
                work.birth = min(LAST_YEAR, maker.birth + rng.randrange(24, 58))
                graph.add(work, relation, maker)
                self.add_facts(work, "work")
                state(work, maker)
            self._add_sequel_facts(type, relation)
        self._add_debut_facts()

    def _add_sequel_facts(self, type: str, maker: str) -> None:
        """Of two works of one maker the later may continue the earlier."""
        latest: dict[int | Value, Entity] = {}
        for work in self._list_by_year(type):
            own = self.graph.facts[work.id][maker][0].tail
            if own in latest and latest[own].birth < work.birth and self.draw_chance(0.6):
                self.graph.add(latest[own], "sequel", work)
            latest[own] = work

    def _add_debut_facts(self) -> None:
        first: dict[int | Value, Entity] = {}
        for film in self._list_by_year("film"):
            for fact in self.graph.facts[film.id].get("cast", ()):
                first.setdefault(fact.tail, film)
        for actor, film in first.items():
            if isinstance(actor, int) and self.draw_chance(0.7):
                self.graph.add(self.graph.entities[actor], "debut film", film)

    def _list_by_year(self, type: str) -> list[Entity]:
        return sorted(self.graph.by_type[type], key=lambda work: (work.birth, work.id))

    def _add_novel_facts(self, novel: Entity, author: Entity) -> None:
        publisher = self.pick("publisher")
        self.graph.add(novel, "publication year", make_year(novel.birth))
        self.graph.add(novel, "novel publisher", publisher)
        if self.draw_chance(0.4) and not self.is_stated(author, "publisher novel", publisher):
            self.graph.add(author, "publisher novel", novel, publisher)
        self.add_facts(novel, "novel")

    def _add_film_facts(self, film: Entity, director: Entity) -> None:
        rng, graph = self.rng, self.graph
        self.add_facts(film, "film credits")
        actors = self.list_people("actor")
        for actor in rng.sample(actors, min(len(actors), rng.randrange(1, 5))):
            graph.add(film, "cast", actor)
            graph.add(film, "character", Value(self.names.make_name("person")), actor)
            if not self.is_stated(actor, "joint film", director) and self.draw_chance(0.3):
                graph.add(actor, "joint film", film, director)
        self.add_facts(film, "film")

    def _add_music_facts(self) -> None:
        """Bands, albums and songs; sets the year of each."""
        rng, graph = self.rng, self.graph
        singers = self.list_people("singer")
        for band in graph.by_type["band"]:
            members = rng.sample(singers, min(len(singers), rng.randrange(2, 5)))
            band.birth = max(one.birth for one in members) + rng.randrange(18, 30)
            self.add_facts(band, "band")
            for member in members:
                graph.add(band, "members", member)
            graph.add(band, "lead singer", members[0])
        for album in graph.by_type["album"]:
            self._add_record_facts(album)
            self.add_facts(album, "album")
        for song in graph.by_type["song"]:
            source = self.pick("album") if self.draw_chance(0.75) else None
            writer = rng.choice(self.list_people("songwriter"))
            if source and (performer := graph.find_first(source, "performer")):
                song.birth = source.birth
                graph.add(song, "album", source)
                graph.add(song, "performer", performer)
                graph.add(song, "release year", make_year(song.birth))
            else:
                self._add_record_facts(song)
            graph.add(song, "songwriter", writer)
            self.add_facts(song, "song")

    def _add_record_facts(self, work: Entity) -> None:
        performer = self.pick("band") if self.draw_chance(0.75) else self.rng.choice(self.list_people("singer"))
        start = performer.birth if performer.type == "band" else performer.birth + 20
        work.birth = min(LAST_YEAR, start + self.rng.randrange(1, 18))
        self.graph.add(work, "performer", performer)
        self.graph.add(work, "release year", make_year(work.birth))


def _add_inverses(graph: WorldGraph) -> None:
    """States each list relation from the facts that it is the inverse of, whole or not at all (more than `limit`)."""
    incoming: dict[tuple[str, int], list[int]] = defaultdict(list)
    wanted = {name for relation in load_relations().values() for name in relation.inverse}
    for fact in graph.all_facts():
        if fact.relation in wanted and isinstance(fact.tail, int):
            incoming[fact.relation, fact.tail].append(fact.head)
    for relation in load_relations().values():
        for entity in [e for type in relation.head for e in graph.by_type[type]] if relation.inverse else ():
            heads = [head for name in relation.inverse for head in incoming[name, entity.id]]
            heads = [head for head in dict.fromkeys(heads) if graph.entities[head].type in relation.tail]
            if 0 < len(heads) <= relation.limit:
                for head in heads:
                    graph.add(entity, relation.id, graph.entities[head])


def _write_titles(graph: WorldGraph) -> None:
    """Titles: the name, and for names that several entities share, what tells them apart in parentheses."""
    shared: dict[str, list[Entity]] = defaultdict(list)
    for entity in graph.entities:
        shared[entity.name.lower()].append(entity)
    for group in shared.values():
        for entity in group:
            entity.title = entity.name if len(group) == 1 else f"{entity.name} ({entity.noun})"
        for clash in _find_clashes(group):
            clash.title = f"{clash.name} ({clash.birth} {clash.noun})" if clash.type != "person" else clash.title
        for number, clash in enumerate(_find_clashes(group)):
            clash.title = f"{clash.title[:-1]}, {'abcdefghijklmnopqrstuvwxyz'[number % 26]})"


def _find_clashes(group: list[Entity]) -> list[Entity]:
    titles = [entity.title for entity in group]
    return [entity for entity in group if titles.count(entity.title) > 1]
