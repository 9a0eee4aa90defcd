"""Companies, publishers, universities, and what happens once: festivals, battles, prizes."""

from __future__ import annotations

from data_gen.world.graph import Entity, Value
from data_gen.world.making import Making
from data_gen.world.values import money, number, year


def add_organisations(m: Making) -> None:
    rng, graph = m.rng, m.graph
    founders = m.people_who("entrepreneur", "engineer", "politician", "chemist", "publisher", "architect")
    for type in ("company", "publisher", "university"):
        for organisation in graph.by_type[type]:
            founder = rng.choice(founders)
            organisation.birth = founder.birth + rng.randrange(22, 58)
            graph.add(organisation, "company founder", founder)
            graph.add(organisation, "founding year", year(organisation.birth))
            (_university if type == "university" else _company)(m, organisation)


def _company(m: Making, company: Entity) -> None:
    rng, graph = m.rng, m.graph
    graph.add(company, "headquarters", m.any("city"))
    if m.some(0.6):
        graph.add(company, "chief executive", m.living())
    owner = m.any("company")
    if m.some(0.4) and owner is not company and graph.one(owner, "parent company") is not company:
        graph.add(company, "parent company", owner)
    if company.type == "company":
        graph.add(company, "employees", number(int(10 ** rng.uniform(1.5, 5))))
        graph.add(company, "revenue", money(rng, 300, 90000))
    if company.noun == "company":
        graph.add(company, "industry", Value(rng.choice(m.words["industries"])))


def _university(m: Making, university: Entity) -> None:
    graph = m.graph
    graph.add(university, "university city", m.any("city"))
    graph.add(university, "students", number(m.rng.randrange(400, 62000)))
    if m.some(0.7):
        graph.add(university, "rector", m.living())
    if m.some(0.5):
        graph.add(university, "eponym", m.any("person"))


def add_events(m: Making) -> None:
    rng, graph = m.rng, m.graph
    generals = m.people_who("general", "politician")
    for festival in graph.by_type["festival"]:
        founder = m.any("person")
        graph.add(festival, "festival city", m.any("city"))
        graph.add(festival, "festival year", year(founder.birth + rng.randrange(22, 58)))
        graph.add(festival, "festival founder", founder)
        graph.add(festival, "attendance", number(rng.randrange(2, 900) * 500))
    for battle in graph.by_type["battle"]:
        first, second = rng.sample(graph.by_type["country"], 2)
        leaders = rng.sample(generals, 2) if len(generals) > 1 else rng.sample(graph.by_type["person"], 2)
        graph.add(battle, "battle year", year(max(p.birth for p in leaders) + rng.randrange(25, 40)))
        graph.add(battle, "battle place", m.any("city"))
        graph.add(battle, "winner", rng.choice((first, second)))
        graph.add(battle, "casualties", number(rng.randrange(90, 42000)))
        graph.add(battle, "commander", leaders[0], first)
        graph.add(battle, "commander", leaders[1], second)
    for prize in graph.by_type["prize"]:
        graph.add(prize, "prize giver", m.any(rng.choice(("company", "university", "publisher"))))
        graph.add(prize, "prize start", year(rng.randrange(1870, 1990)))
        graph.add(prize, "prize money", money(rng, 5, 2000))
        if m.some(0.6):
            graph.add(prize, "eponym", m.any("person"))
