"""Countries, cities and rivers: which lies where, how large, how far apart."""

from __future__ import annotations

from data_gen.world.graph import Entity, Value
from data_gen.world.making import Making
from data_gen.world.values import measure, number, year


def add_places(m: Making) -> None:
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
        _city(m, city)
    for country in countries:
        _country(m, country, homes[country.id])
    for river in graph.by_type["river"]:
        _river(m, river)


def _city(m: Making, city: Entity) -> None:
    rng, graph = m.rng, m.graph
    if m.some(0.7):
        graph.add(city, "mayor", m.living())
    if m.some(0.6):
        graph.add(city, "city river", m.any("river"))
    if m.some(0.6):
        graph.add(city, "city founding year", year(rng.randrange(900, 1890)))
    if m.some(0.4):
        graph.add(city, "elevation", measure(rng.randrange(2, 2900), "metres"))
    twin = m.any("city")
    if m.some(0.4) and twin is not city and not graph.one(city, "twin city") and not graph.one(twin, "twin city"):
        graph.add(city, "twin city", twin)
        graph.add(twin, "twin city", city)
    for other in rng.sample(graph.by_type["city"], 2):
        known = {f.second for f in graph.facts[city.id].get("distance", ())}
        if other is not city and other.id not in known:
            far = measure(rng.randrange(12, 1900), "km")
            graph.add(city, "distance", far, other)
            graph.add(other, "distance", far, city)


def _country(m: Making, country: Entity, cities: list[tuple[int, Entity]]) -> None:
    rng, graph = m.rng, m.graph
    largest = max(cities)[1]
    graph.add(country, "capital", largest if m.some(0.5) else rng.choice(cities)[1])
    graph.add(country, "largest city", largest)
    graph.add(country, "official language", rng.choice(m.languages))
    graph.add(country, "currency", Value(m.names.new("currency")))
    graph.add(country, "country population", number(int(10 ** rng.uniform(5.7, 8.1)) + sum(n for n, _ in cities)))
    graph.add(country, "area", measure(int(10 ** rng.uniform(3.5, 6.2)), "square kilometres"))
    if m.some(0.8):
        graph.add(country, "head of state", m.living())
    if m.some(0.6):
        graph.add(country, "independence year", year(rng.randrange(1700, 1995)))
    near = {f.tail for f in graph.facts[country.id].get("neighbours", ())}
    others = rng.sample(graph.by_type["country"], 2)
    for other in others[: rng.randrange(1, 3)]:
        if other is not country and other.id not in near:
            graph.add(country, "neighbours", other)
            graph.add(other, "neighbours", country)
            if m.some(0.6):
                river = m.any("river")
                graph.add(country, "border river", river, other)
                graph.add(other, "border river", river, country)


def _river(m: Making, river: Entity) -> None:
    graph = m.graph
    graph.add(river, "river length", measure(m.rng.randrange(40, 3900), "km"))
    graph.add(river, "source country", m.any("country"))
    if m.some(0.5):
        graph.add(river, "mouth", m.any("city"))
    elif (other := m.any("river")) is not river:
        graph.add(river, "tributary", other)
