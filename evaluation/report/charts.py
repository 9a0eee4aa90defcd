"""Charts as inline SVG: drawn 400 units wide, coloured by the page's CSS, so that they follow its light and its dark.

Every text is escaped (`Markup.format`). A series has a number: its colour and its mark are the same in every chart of a
page (classes `s0` … `s7` of style.css), and the mark differs where colours come round again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH = 400
COLOURS = 8
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 40
LOG_FROM = 20  # an axis whose largest value is so many times its smallest is logarithmic

Figure = Mapping[str, float]  # n, value, low, high


@dataclass(frozen=True)
class Series:
    """A name in the legend, and the number that decides colour and mark."""

    name: str
    number: int

    @property
    def style(self) -> str:
        return f"s{self.number % COLOURS}"


@dataclass(frozen=True)
class Axis:
    """Values → units of the drawing, from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (_log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            powers = range(math.floor(_log(self.low)), math.ceil(_log(self.high)) + 1)
            wide = _log(self.high) - _log(self.low) > 2
            found = [m * 10.0**p for p in powers for m in ((1,) if wide else (1, 2, 5))]
        else:
            step = _step(self.high - self.low)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [step * n for n in range(first, last + 1)]
        return [tick for tick in found if self.low <= tick <= self.high]


def scatter(points: Sequence[tuple[Series, Figure, Figure]], x_label: str, y_label: str) -> Markup:
    """A mark a series at its two means, with both intervals."""
    x = _axis([v for _, figure, _ in points for v in _ends(figure)], LEFT, WIDTH - RIGHT)
    height = 300
    y = _axis([v for _, _, figure in points for v in _ends(figure)], height - BOTTOM, TOP, share=True)
    parts = _frame(x, y, height, x_label, y_label)
    for series, across, up in points:
        left, right = x(across["value"]), y(up["value"])
        parts += [
            _line(x(across["low"]), right, x(across["high"]), right, f"whisker {series.style}"),
            _line(left, y(up["low"]), left, y(up["high"]), f"whisker {series.style}"),
            _mark(left, right, series, f"{series.name}: {number(across['value'])}, {up['value']:.3f}"),
        ]
    return _svg(height, parts, f"{y_label} against {x_label}")


def bars(groups: Sequence[tuple[str, Sequence[tuple[Series, Figure]]]], label: str) -> Markup:
    """A block of horizontal bars a group, one bar a series, with its mark, its interval and its value in [0, 1]."""
    top, bar, gap = 6.0, 15.0, 12.0
    x = Axis(0.0, 1.0, 24, WIDTH - 46)
    parts: list[Markup] = []
    for name, members in groups:
        parts.append(_text(12, top + 11, name, "group"))
        top += 18
        for series, figure in members:
            end = x(max(0.0, min(1.0, figure["value"])))
            middle = top + bar / 2 - 1
            between = f"[{figure['low']:.3f}, {figure['high']:.3f}], n={figure['n']:.0f}"
            said = f"{series.name}, {name}: {figure['value']:.3f} {between}"
            parts += [
                _mark(11, middle, series, said),
                _rect(x(0), top, max(end - x(0), 1), bar - 2, f"bar {series.style}", said),
                _line(x(max(0, figure["low"])), middle, x(min(1, figure["high"])), middle, "whisker ink"),
                _text(WIDTH - 40, middle + 4, f"{figure['value']:.2f}", "value"),
            ]
            top += bar
        top += gap
    axis_at = top - gap + 4
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.insert(0, _line(x(tick), 4, x(tick), axis_at, "grid"))
        parts.append(_text(x(tick), axis_at + 14, number(tick), "tick middle"))
    parts.append(_text((x(0) + x(1)) / 2, axis_at + 30, label, "axis middle"))
    return _svg(axis_at + 36, parts, label)


def lines(curves: Sequence[tuple[Series, Sequence[float], Sequence[Figure]]], x_label: str, y_label: str) -> Markup:
    """A line a series through its means, with the band of their intervals; both axes begin at 0."""
    height = 280
    x = Axis(0, max(x for _, xs, _ in curves for x in xs), LEFT, WIDTH - RIGHT)
    y = Axis(0.0, 1.0, height - BOTTOM, TOP)
    parts = _frame(x, y, height, x_label, y_label)
    for series, xs, figures in curves:
        above = [(x(at), y(f["high"])) for at, f in zip(xs, figures, strict=True)]
        below = [(x(at), y(f["low"])) for at, f in zip(xs, figures, strict=True)]
        parts.append(_shape("polygon", [*above, *reversed(below)], f"band {series.style}"))
    for series, xs, figures in curves:
        way = [(x(at), y(f["value"])) for at, f in zip(xs, figures, strict=True)]
        parts.append(_shape("polyline", way, f"curve {series.style}"))
        last = max(0, len(way) - 1)
        for place in {0, last // 2, last}:
            said = f"{series.name}, {x_label} {number(xs[place])}: {figures[place]['value']:.3f}"
            parts.append(_mark(*way[place], series, said))
    return _svg(height, parts, f"{y_label} by {x_label}")


def confusion(counts: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> Markup:
    """Gold labels down, predicted ones across; a cell says how many, and is as dark as its share of the row."""
    left, top, size = 100.0, 30.0, (WIDTH - 100 - 8) / max(4, len(names))
    parts = [_text(left + size * (place + 0.5), 22, name, "tick middle small") for place, name in enumerate(names)]
    for row, gold in enumerate(names):
        total = sum(counts.get(gold, {}).values())
        parts.append(_text(left - 8, top + (row + 0.5) * size * 0.6 + 4, gold, "tick end small"))
        for column, predicted in enumerate(names):
            found = counts.get(gold, {}).get(predicted, 0)
            share = found / total if total else 0.0
            at = left + column * size, top + row * size * 0.6
            said, dark = f"{gold} taken for {predicted}: {found} of {total}", f"{0.06 + 0.94 * share:.2f}"
            parts.append(_rect(*at, size - 2, size * 0.6 - 2, "cell", said, dark))
            ink = "on-cell" if share > 0.55 else "value"
            parts.append(_text(at[0] + size / 2, at[1] + size * 0.3 + 3, f"{found}", f"{ink} middle"))
    return _svg(top + len(names) * size * 0.6 + 6, parts, "confusion of routes")


def reliability(curves: Sequence[tuple[Series, Sequence[Mapping[str, float]]]]) -> Markup:
    """Accuracy of answers by how sure they were, a mark a bin, as large as its share; on the diagonal all is right."""
    height = 320
    x, y = Axis(0.0, 1.0, LEFT, WIDTH - RIGHT), Axis(0.0, 1.0, height - BOTTOM, TOP)
    parts = _frame(x, y, height, "confidence", "share that is right")
    parts.append(_line(x(0), y(0), x(1), y(1), "diagonal"))
    for series, bins in curves:
        total = sum(one["n"] for one in bins) or 1
        way = [(x(one["confidence"]), y(one["accuracy"])) for one in bins]
        parts.append(_shape("polyline", way, f"curve thin {series.style}"))
        for at, one in zip(way, bins, strict=True):
            radius = 3 + 9 * math.sqrt(one["n"] / total)
            said = f"{series.name}: {one['accuracy']:.2f} right of {one['n']:.0f} given with {one['confidence']:.2f}"
            parts.append(_circle(*at, radius, f"dot {series.style}", said))
    return _svg(height, parts, "reliability of labels")


def number(value: float) -> str:
    """As an axis writes it."""
    if abs(value) >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}"


def mark(series: Series) -> Markup:
    """The mark of a series, for a legend."""
    return Markup('<svg class="key" viewBox="0 0 16 16" aria-hidden="true">{}</svg>').format(_mark(8, 8, series, ""))


def _log(value: float) -> float:
    return math.log10(max(value, 1e-9))


def _step(span: float) -> float:
    rough = (span or 1) / 4
    power = 10 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)


def _ends(figure: Figure) -> tuple[float, float]:
    return figure["low"], figure["high"]


def _axis(values: Iterable[float], start: float, end: float, *, share: bool = False) -> Axis:
    """Around all values, from 0 unless logarithmic; a `share` ends at 1 at most."""
    found = list(values)
    low, high = min(found), max(found)
    if not share and low > 0 and high / low >= LOG_FROM:
        return Axis(low / 1.3, high * 1.3, start, end, log=True)
    high = high * 1.08 or 1.0
    return Axis(0.0, min(high, 1.0) if share else high, start, end)


def _frame(x: Axis, y: Axis, height: float, x_label: str, y_label: str) -> list[Markup]:
    parts = []
    for tick in y.ticks:
        parts += [
            _line(x.start, y(tick), x.end, y(tick), "grid"),
            _text(x.start - 6, y(tick) + 4, number(tick), "tick end"),
        ]
    for tick in x.ticks:
        parts += [
            _line(x(tick), y.start, x(tick), y.end, "grid"),
            _text(x(tick), y.start + 15, number(tick), "tick middle"),
        ]
    parts.append(_line(x.start, y.start, x.end, y.start, "base"))
    parts.append(_text((x.start + x.end) / 2, height - 6, x_label + (" (log)" if x.log else ""), "axis middle"))
    middle = (y.start + y.end) / 2
    turned = Markup('<text class="axis middle" transform="translate(11 {:.1f}) rotate(-90)">{}</text>')
    return [*parts, turned.format(middle, y_label)]


def _svg(height: float, parts: Iterable[Markup], label: str) -> Markup:
    head = Markup('<svg class="chart" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">').format(WIDTH, height, label)
    return head + Markup("").join(parts) + Markup("</svg>")


def _text(x: float, y: float, text: str, style: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(x, y, style, text)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(x1, y1, x2, y2, style)


def _rect(x: float, y: float, width: float, height: float, style: str, said: str, opacity: str = "1") -> Markup:
    form = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}" {}><title>{}</title></rect>')
    return form.format(x, y, width, height, style, Markup('fill-opacity="{}"').format(opacity), said)


def _circle(x: float, y: float, radius: float, style: str, said: str) -> Markup:
    form = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" class="{}"><title>{}</title></circle>')
    return form.format(x, y, radius, style, said)


def _shape(kind: str, points: Iterable[tuple[float, float]], style: str) -> Markup:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<{0} points="{1}" class="{2}"/>').format(Markup(kind), way, style)


MARKS: tuple[Callable[[float, float], list[tuple[float, float]]], ...] = (
    lambda x, y: [(x - 5, y - 5), (x + 5, y - 5), (x + 5, y + 5), (x - 5, y + 5)],
    lambda x, y: [(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)],
    lambda x, y: [(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)],
)


def _mark(x: float, y: float, series: Series, said: str) -> Markup:
    """A circle, a square, a triangle or a diamond in turn; with its colour each of 32 series has a mark of its own."""
    form = (series.number + series.number // COLOURS) % 4
    if form == 0:
        return _circle(x, y, 5.5, f"dot {series.style}", said)
    way = " ".join(f"{a:.1f},{b:.1f}" for a, b in MARKS[form - 1](x, y))
    return Markup('<polygon points="{}" class="dot {}"><title>{}</title></polygon>').format(way, series.style, said)
