"""People: born, married, taught, employed, honoured, in an order of years that could be."""

from __future__ import annotations

from data_gen.world.graph import Entity, Value, pick_adult
from data_gen.world.making import Making
from data_gen.world.values import date, measure, year


def add_people(m: Making) -> None:
    rng, graph = m.rng, m.graph
    for person in graph.by_type["person"]:
        home = m.any("city")
        graph.add(person, "birth date", date(rng, person.birth))
        graph.add(person, "birthplace", home)
        country = graph.one(home, "country") if m.some(0.7) else m.any("country")
        assert country is not None
        graph.add(person, "citizenship", country)
        if person.birth < 1945 and m.some(0.7):
            graph.add(person, "death date", date(rng, person.birth + rng.randrange(61, 75)))
            near = [f.second for f in graph.facts[home.id].get("distance", ()) if f.second is not None]
            place = graph.entities[rng.choice(near)] if near and m.some(0.5) else m.any("city")
            graph.add(person, "deathplace", home if m.some(0.15) else place)
            if m.some(0.3):
                graph.add(person, "burial place", place if m.some(0.4) else m.any("city"))
        if m.some(0.25):
            graph.add(person, "native language", rng.choice(m.languages))
        if m.some(0.25):
            graph.add(person, "height", measure(rng.randrange(150, 202), "cm"))
        if m.some(0.3) and (teacher := pick_adult(rng, graph.by_type["person"], person.birth + 20)):
            graph.add(person, "teacher", teacher)


def add_families(m: Making) -> None:
    rng, graph = m.rng, m.graph
    people = sorted(graph.by_type["person"], key=lambda p: (p.birth, p.id))
    couples: list[tuple[Entity, Entity]] = []
    single = {p.id for p in people}
    for index, person in enumerate(people):
        near = [p for p in people[index + 1 : index + 9] if p.gender != person.gender and p.id in single]
        if person.id in single and near and near[0].birth - person.birth < 14 and m.some(0.65):
            single -= {person.id, near[0].id}
            couples.append((person, near[0]))
            when = year(near[0].birth + rng.randrange(21, 36))
            for one, other in ((person, near[0]), (near[0], person)):
                graph.add(one, "spouse", other)
                graph.add(one, "wedding year", when, other)
    for child in people:
        if couples and m.some(0.5):
            fitting = [c for c in rng.choices(couples, k=12) if 20 <= child.birth - c[1].birth <= 35]
            for parent in fitting[0] if fitting else ():
                graph.add(child, "mother" if parent.gender == "she" else "father", parent)


def add_careers(m: Making) -> None:
    rng, graph = m.rng, m.graph
    for person in graph.by_type["person"]:
        at = year(person.birth + rng.randrange(22, 50))
        if m.some(0.5):
            university = m.any("university")
            graph.add(person, "alma mater", university)
            graph.add(person, "subject studied", Value(rng.choice(m.words["subjects"])), university)
        if m.some(0.4):
            employer = m.any(rng.choice(("company", "company", "university", "publisher")))
            graph.add(person, "employer", employer)
            graph.add(person, "joining year", at, employer)
            if m.some(0.6):
                graph.add(person, "position", Value(rng.choice(m.words["positions"])), employer)
        if m.some(0.3):
            prize = m.any("prize")
            graph.add(person, "award", prize)
            graph.add(person, "prize year", year(person.birth + rng.randrange(30, 60)), prize)
