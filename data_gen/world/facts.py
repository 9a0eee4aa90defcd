"""What holds between the entities of a world: places, people, organisations, events and works, in an order of years
that could be.
"""

from __future__ import annotations

from data_gen.world.graph import Entity, GraphMaker, Value, date, measure, money, number, pick_adult, year


def add_place_facts(m: GraphMaker) -> None:
    """Adds the facts of cities, countries and rivers, and draws the languages of the world."""
    rng, graph = m.rng, m.graph
    countries, cities = graph.by_type["country"], graph.by_type["city"]
    languages = [m.names.new("language") for _ in range(max(3, len(countries) * 2 // 3))]
    m.languages = [Value(name) for name in languages]
    homes: dict[int, list[tuple[int, Entity]]] = {c.id: [] for c in countries}
    for index, city in enumerate(cities):
        country = countries[index % len(countries)] if index < len(countries) else rng.choice(countries)
        people = int(10 ** rng.uniform(3.3, 6.7))
        homes[country.id].append((people, city))
        graph.add(city, "country", country)
        graph.add(city, "city population", number(people))
        _add_city(m, city)
    for country in countries:
        _add_country(m, country, homes[country.id])
    for river in graph.by_type["river"]:
        _add_river(m, river)


def _add_city(m: GraphMaker, city: Entity) -> None:
    rng, graph = m.rng, m.graph
    if m.happens(0.7):
        graph.add(city, "mayor", m.pick_living())
    if m.happens(0.6):
        graph.add(city, "city river", m.pick("river"))
    if m.happens(0.6):
        graph.add(city, "city founding year", year(rng.randrange(900, 1890)))
    if m.happens(0.4):
        graph.add(city, "elevation", measure(rng.randrange(2, 2900), "metres"))
    twin = m.pick("city")
    if m.happens(0.4) and twin is not city and not graph.one(city, "twin city") and not graph.one(twin, "twin city"):
        graph.add(city, "twin city", twin)
        graph.add(twin, "twin city", city)
    for other in rng.sample(graph.by_type["city"], 2):
        known = {f.second for f in graph.facts[city.id].get("distance", ())}
        if other is not city and other.id not in known:
            far = measure(rng.randrange(12, 1900), "km")
            graph.add(city, "distance", far, other)
            graph.add(other, "distance", far, city)


def _add_country(m: GraphMaker, country: Entity, cities: list[tuple[int, Entity]]) -> None:
    rng, graph = m.rng, m.graph
    largest = max(cities)[1]
    graph.add(country, "capital", largest if m.happens(0.5) else rng.choice(cities)[1])
    graph.add(country, "largest city", largest)
    graph.add(country, "official language", rng.choice(m.languages))
    graph.add(country, "currency", Value(m.names.new("currency")))
    graph.add(country, "country population", number(int(10 ** rng.uniform(5.7, 8.1)) + sum(n for n, _ in cities)))
    graph.add(country, "area", measure(int(10 ** rng.uniform(3.5, 6.2)), "square kilometres"))
    if m.happens(0.8):
        graph.add(country, "head of state", m.pick_living())
    if m.happens(0.6):
        graph.add(country, "independence year", year(rng.randrange(1700, 1995)))
    near = {f.tail for f in graph.facts[country.id].get("neighbours", ())}
    others = rng.sample(graph.by_type["country"], 2)
    for other in others[: rng.randrange(1, 3)]:
        if other is not country and other.id not in near:
            graph.add(country, "neighbours", other)
            graph.add(other, "neighbours", country)
            if m.happens(0.6):
                river = m.pick("river")
                graph.add(country, "border river", river, other)
                graph.add(other, "border river", river, country)


def _add_river(m: GraphMaker, river: Entity) -> None:
    graph = m.graph
    graph.add(river, "river length", measure(m.rng.randrange(40, 3900), "km"))
    graph.add(river, "source country", m.pick("country"))
    if m.happens(0.5):
        graph.add(river, "mouth", m.pick("city"))
    elif (other := m.pick("river")) is not river:
        graph.add(river, "tributary", other)


def add_people_facts(m: GraphMaker) -> None:
    """Adds the facts of each person's life: dates, places, citizenship, language, height and teacher."""
    rng, graph = m.rng, m.graph
    for person in graph.by_type["person"]:
        home = m.pick("city")
        graph.add(person, "birth date", date(rng, person.birth))
        graph.add(person, "birthplace", home)
        country = graph.one(home, "country") if m.happens(0.7) else m.pick("country")
        assert country is not None
        graph.add(person, "citizenship", country)
        if person.birth < 1945 and m.happens(0.7):
            graph.add(person, "death date", date(rng, person.birth + rng.randrange(61, 75)))
            near = [f.second for f in graph.facts[home.id].get("distance", ()) if f.second is not None]
            place = graph.entities[rng.choice(near)] if near and m.happens(0.5) else m.pick("city")
            graph.add(person, "deathplace", home if m.happens(0.15) else place)
            if m.happens(0.3):
                graph.add(person, "burial place", place if m.happens(0.4) else m.pick("city"))
        if m.happens(0.25):
            graph.add(person, "native language", rng.choice(m.languages))
        if m.happens(0.25):
            graph.add(person, "height", measure(rng.randrange(150, 202), "cm"))
        if m.happens(0.3) and (teacher := pick_adult(rng, graph.by_type["person"], person.birth + 20)):
            graph.add(person, "teacher", teacher)


def add_family_facts(m: GraphMaker) -> None:
    """Marries people of like age, and gives children their parents."""
    rng, graph = m.rng, m.graph
    people = sorted(graph.by_type["person"], key=lambda p: (p.birth, p.id))
    couples: list[tuple[Entity, Entity]] = []
    single = {p.id for p in people}
    for index, person in enumerate(people):
        near = [p for p in people[index + 1 : index + 9] if p.gender != person.gender and p.id in single]
        if person.id in single and near and near[0].birth - person.birth < 14 and m.happens(0.65):
            single -= {person.id, near[0].id}
            couples.append((person, near[0]))
            when = year(near[0].birth + rng.randrange(21, 36))
            for one, other in ((person, near[0]), (near[0], person)):
                graph.add(one, "spouse", other)
                graph.add(one, "wedding year", when, other)
    for child in people:
        if couples and m.happens(0.5):
            fitting = [c for c in rng.choices(couples, k=12) if 20 <= child.birth - c[1].birth <= 35]
            for parent in fitting[0] if fitting else ():
                graph.add(child, "mother" if parent.gender == "she" else "father", parent)


def add_career_facts(m: GraphMaker) -> None:
    """Adds where people studied and worked, and the prizes that they won."""
    rng, graph = m.rng, m.graph
    for person in graph.by_type["person"]:
        at = year(person.birth + rng.randrange(22, 50))
        if m.happens(0.5):
            university = m.pick("university")
            graph.add(person, "alma mater", university)
            graph.add(person, "subject studied", Value(rng.choice(m.words["subjects"])), university)
        if m.happens(0.4):
            employer = m.pick(rng.choice(("company", "company", "university", "publisher")))
            graph.add(person, "employer", employer)
            graph.add(person, "joining year", at, employer)
            if m.happens(0.6):
                graph.add(person, "position", Value(rng.choice(m.words["positions"])), employer)
        if m.happens(0.3):
            prize = m.pick("prize")
            graph.add(person, "award", prize)
            graph.add(person, "prize year", year(person.birth + rng.randrange(30, 60)), prize)


def add_organisation_facts(m: GraphMaker) -> None:
    """Adds the founders and the facts of companies, publishers and universities; sets the year of each founding."""
    rng, graph = m.rng, m.graph
    founders = m.list_people("entrepreneur", "engineer", "politician", "chemist", "publisher", "architect")
    for type in ("company", "publisher", "university"):
        for organisation in graph.by_type[type]:
            founder = rng.choice(founders)
            organisation.birth = founder.birth + rng.randrange(22, 58)
            graph.add(organisation, "company founder", founder)
            graph.add(organisation, "founding year", year(organisation.birth))
            (_add_university if type == "university" else _add_company)(m, organisation)


def _add_company(m: GraphMaker, company: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(company, "headquarters", m.pick("city"))
    if m.happens(0.6):
        graph.add(company, "chief executive", m.pick_living())
    owner = m.pick("company")
    if m.happens(0.4) and owner is not company and graph.one(owner, "parent company") is not company:
        graph.add(company, "parent company", owner)
    if company.type == "company":
        graph.add(company, "employees", number(int(10 ** rng.uniform(1.5, 5))))
        graph.add(company, "revenue", money(rng, 300, 90000))
    if company.noun == "company":
        graph.add(company, "industry", Value(rng.choice(m.words["industries"])))


def _add_university(m: GraphMaker, university: Entity) -> None:
    graph = m.graph
    graph.add(university, "university city", m.pick("city"))
    graph.add(university, "students", number(m.rng.randrange(400, 62000)))
    if m.happens(0.7):
        graph.add(university, "rector", m.pick_living())
    if m.happens(0.5):
        graph.add(university, "eponym", m.pick("person"))


def add_event_facts(m: GraphMaker) -> None:
    """Adds the facts of festivals, battles and prizes."""
    rng, graph = m.rng, m.graph
    generals = m.list_people("general", "politician")
    for festival in graph.by_type["festival"]:
        founder = m.pick("person")
        graph.add(festival, "festival city", m.pick("city"))
        graph.add(festival, "festival year", year(founder.birth + rng.randrange(22, 58)))
        graph.add(festival, "festival founder", founder)
        graph.add(festival, "attendance", number(rng.randrange(2, 900) * 500))
    for battle in graph.by_type["battle"]:
        first, second = rng.sample(graph.by_type["country"], 2)
        leaders = rng.sample(generals, 2) if len(generals) > 1 else rng.sample(graph.by_type["person"], 2)
        graph.add(battle, "battle year", year(max(p.birth for p in leaders) + rng.randrange(25, 40)))
        graph.add(battle, "battle place", m.pick("city"))
        graph.add(battle, "winner", rng.choice((first, second)))
        graph.add(battle, "casualties", number(rng.randrange(90, 42000)))
        graph.add(battle, "commander", leaders[0], first)
        graph.add(battle, "commander", leaders[1], second)
    for prize in graph.by_type["prize"]:
        graph.add(prize, "prize giver", m.pick(rng.choice(("company", "university", "publisher"))))
        graph.add(prize, "prize start", year(rng.randrange(1870, 1990)))
        graph.add(prize, "prize money", money(rng, 5, 2000))
        if m.happens(0.6):
            graph.add(prize, "eponym", m.pick("person"))


def add_work_facts(m: GraphMaker) -> None:
    """Adds the facts of novels and films, with their sequels and debuts; sets the year of each."""
    rng, graph = m.rng, m.graph
    for type, makers, relation in (
        ("novel", m.list_people("novelist", "poet", "historian"), "author"),
        ("film", m.list_people("film director"), "director"),
    ):
        pool = rng.sample(makers, min(len(makers), max(2, len(graph.by_type[type]) // 2)))
        for work in graph.by_type[type]:
            maker = rng.choice(pool)
            work.birth = min(2023, maker.birth + rng.randrange(24, 58))
            graph.add(work, relation, maker)
            if m.happens(0.5):
                graph.add(work, "setting", m.pick("city"))
            if m.happens(0.3):
                graph.add(work, "work language", rng.choice(m.languages))
            (_add_film if type == "film" else _add_novel)(m, work, maker)

        _add_sequels(m, type, relation)
    _add_debuts(m)


def _add_sequels(m: GraphMaker, type: str, maker: str) -> None:
    """Of two works of one maker the later may continue the earlier."""
    by_maker: dict[int, list[Entity]] = {}
    for work in sorted(m.graph.by_type[type], key=lambda w: (w.birth, w.id)):
        found = m.graph.one(work, maker)
        works = by_maker.setdefault(found.id if found else -1, [])
        if works and works[-1].birth < work.birth and m.happens(0.6):
            m.graph.add(works[-1], "sequel", work)
        works.append(work)


def _add_debuts(m: GraphMaker) -> None:
    first: dict[int, Entity] = {}
    for film in sorted(m.graph.by_type["film"], key=lambda w: (w.birth, w.id)):
        for fact in m.graph.facts[film.id].get("cast", ()):
            assert isinstance(fact.tail, int)
            first.setdefault(fact.tail, film)
    for actor, film in first.items():
        if m.happens(0.7):
            m.graph.add(m.graph.entities[actor], "debut film", film)


def _add_novel(m: GraphMaker, novel: Entity, author: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(novel, "publication year", year(novel.birth))
    publisher = m.pick("publisher")
    graph.add(novel, "novel publisher", publisher)
    if m.happens(0.4) and not any(f.second == publisher.id for f in graph.facts[author.id].get("publisher novel", ())):
        graph.add(author, "publisher novel", novel, publisher)
    graph.add(novel, "pages", number(rng.randrange(90, 900)))
    graph.add(novel, "protagonist", Value(m.names.new("person")))


def _add_film(m: GraphMaker, film: Entity, director: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(film, "release year", year(film.birth))
    writer = pick_adult(rng, m.list_people("screenwriter"), film.birth)
    graph.add(film, "screenwriter", director if writer is None or m.happens(0.25) else writer)
    for relation, occupation in (("film producer", "film producer"), ("composer", "composer")):
        if m.happens(0.5):
            graph.add(film, relation, rng.choice(m.list_people(occupation)))
    actors = m.list_people("actor")
    for actor in rng.sample(actors, min(len(actors), rng.randrange(1, 5))):
        graph.add(film, "cast", actor)
        graph.add(film, "character", Value(m.names.new("person")), actor)
        if not any(f.second == director.id for f in graph.facts[actor.id].get("joint film", ())) and m.happens(0.3):
            graph.add(actor, "joint film", film, director)
    graph.add(film, "running time", measure(rng.randrange(61, 215), "minutes"))
    graph.add(film, "gross", money(rng, 200, 400000))
    graph.add(film, "film country", m.pick("country"))
    companies = graph.by_type["company"]
    studios = [c for c in companies if c.noun == "studio"] or companies
    graph.add(film, "studio", rng.choice(studios))
    if m.happens(0.5):
        graph.add(film, "distributor", rng.choice(companies))
    if m.happens(0.35):
        graph.add(film, "basis", m.pick("novel"))


def add_music_facts(m: GraphMaker) -> None:
    """Adds the facts of bands, albums and songs; sets the year of each."""
    rng, graph = m.rng, m.graph
    singers = m.list_people("singer")
    labels = [c for c in graph.by_type["company"] if c.noun == "label"] or graph.by_type["company"]
    for band in graph.by_type["band"]:
        members = rng.sample(singers, min(len(singers), rng.randrange(2, 5)))
        band.birth = max(one.birth for one in members) + rng.randrange(18, 30)
        graph.add(band, "founding year", year(band.birth))
        graph.add(band, "home city", m.pick("city"))
        graph.add(band, "label", rng.choice(labels))
        for member in members:
            graph.add(band, "members", member)
        graph.add(band, "lead singer", members[0])
    for album in graph.by_type["album"]:
        _add_record(m, album, labels)
        if m.happens(0.6):
            graph.add(album, "album producer", m.pick("person"))
        graph.add(album, "sales", number(rng.randrange(2, 9000) * 1000))
    for song in graph.by_type["song"]:
        source = m.pick("album") if m.happens(0.75) else None
        writer = rng.choice(m.list_people("songwriter"))
        if source and (act := graph.one(source, "performer")):
            song.birth = source.birth
            graph.add(song, "album", source)
            graph.add(song, "performer", act)
            graph.add(song, "release year", year(song.birth))
        else:
            _add_record(m, song, [])
        graph.add(song, "songwriter", writer)
        graph.add(song, "song length", measure(rng.randrange(95, 600), "seconds"))


def _add_record(m: GraphMaker, work: Entity, labels: list[Entity]) -> None:
    rng, graph = m.rng, m.graph
    performer = m.pick("band") if m.happens(0.75) else rng.choice(m.list_people("singer"))
    start = performer.birth if performer.type == "band" else performer.birth + 20
    work.birth = min(2023, start + rng.randrange(1, 18))
    graph.add(work, "performer", performer)
    graph.add(work, "release year", year(work.birth))
    if labels:
        graph.add(work, "label", rng.choice(labels))
