"""The configuration of an endpoint teacher: a YAML file, checked field by field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from data_gen.config import QuestionSource, SplitConfig
from revelator.config import FilePath, Share, Strict
from revelator.endpoints import Address

Teachable = Literal[
    "route", "translate_bnf", "decompose", "refine", "end", "relevance", "translate_logic", "translate_art"
]
DEFAULT: tuple[Teachable, ...] = ("route", "translate_bnf", "decompose", "refine", "end", "relevance")


class EndpointConfig(Strict):
    """`timeout` is in seconds without an answer. A retry waits as long as the server asks for, up to two minutes, or
    else half a second and then twice as long each time, up to eight seconds.

    `concurrency` is how many calls are under way at once. The key is read from the environment variable OPENAI_API_KEY
    alone.
    """

    url: Address
    model: str = Field(min_length=1)
    concurrency: int = Field(8, ge=1, le=1000)
    timeout: float = Field(120, gt=0)
    retries: int = Field(8, ge=0)


class SamplingConfig(Strict):
    """`samples` of each call, the i-th at the i-th temperature (from the first again) and with seed i."""

    samples: int = Field(3, ge=1, le=64)
    temperatures: tuple[Annotated[float, Field(ge=0, le=2)], ...] = Field((0.0, 0.5, 0.8), min_length=1)
    max_tokens: int = Field(512, ge=1)
    agreement: Share = 0.5  # part of the samples that must agree with the one kept


class BudgetConfig(Strict):
    """What a set may cost, answers from the cache included. Prices are for a million tokens, in one currency."""

    tokens: int | None = Field(None, ge=1)
    money: float | None = Field(None, gt=0)
    price_in: float = Field(0, ge=0)
    price_out: float = Field(0, ge=0)

    @model_validator(mode="after")
    def _has_prices(self) -> BudgetConfig:
        if self.money is not None and not (self.price_in or self.price_out):
            raise ValueError("a budget in money needs price_in and price_out, for a million tokens each")
        return self


class TeacherConfig(Strict):
    """What teaching and writing compound questions share."""

    name: str
    seed: int = 13
    endpoint: EndpointConfig
    sampling: SamplingConfig = Field(default_factory=lambda: SamplingConfig.model_validate({}))
    budget: BudgetConfig = Field(default_factory=lambda: BudgetConfig.model_validate({}))
    held_out: FilePath | None = None
    entity_coverage: Share = 0.5


class TeachConfig(TeacherConfig):
    """Questions to annotate. `route`: what all of them are; asked of the teacher where it is not given."""

    rows: Literal["taught"]
    sources: tuple[QuestionSource, ...] = Field(min_length=1)
    tasks: tuple[Teachable, ...] = DEFAULT
    route: Literal["", "straightforward", "single", "compound", "complex"] = ""
    passages: int = Field(6, ge=0)  # judged for each question
    split: SplitConfig = SplitConfig()

    @model_validator(mode="after")
    def _has_plans(self) -> TeachConfig:
        if {"refine", "end"} & {*self.tasks} and "translate_bnf" not in self.tasks:
            raise ValueError("tasks: refine and end are taught from the steps of plans: add translate_bnf")
        return self


class Sizes(Strict):
    """Compound questions in each split."""

    train: int = Field(ge=0)
    dev: int = Field(0, ge=0)
    test: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _wants_some(self) -> Sizes:
        if not self.train + self.dev + self.test:
            raise ValueError("at least one split must have a question")
        return self


class CompoundConfig(TeacherConfig):
    """A corpus (rows `{"title", "text"}`, JSON lines, gzipped or not) about whose titles questions are written."""

    rows: Literal["compound"]
    corpus: FilePath
    licence: str
    sizes: Sizes
    documents: int = Field(10, ge=1)  # of one title, at most
