"""Several samples of one call: the first valid one is kept, and how many agree with it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from data_gen.leakage import normalise
from data_gen.teacher.client import Client, Message
from data_gen.teacher.config import SamplingConfig
from data_gen.teacher.prompting import STRUCTURE, last_line
from revelator.errors import RevelatorError
from revelator.plans import Expression, letters_key

T = TypeVar("T")


class DroppedError(RevelatorError):
    """Nothing of a teacher's answers can be kept; the message is the reason under which it is counted."""


@dataclass(frozen=True)
class Decision:
    """What was kept, and the part of all samples, valid or not, that agree with it."""

    value: Any
    agreement: float


async def decide(
    client: Client,
    messages: list[Message],
    sampling: SamplingConfig,
    read: Callable[[str], Any],
    key: Callable[[Any], Hashable],
) -> Decision:
    """The first sample that `read` accepts; `key` gives equal values to samples that agree.

    `read` gets the last line of a reply and raises DroppedError with the reason against it. Raises DroppedError when
    every sample is refused, or too few agree.
    """
    calls = [
        client.ask(messages, sampling.temperatures[i % len(sampling.temperatures)], seed=i)
        for i in range(sampling.samples)
    ]
    replies = await asyncio.gather(*calls, return_exceptions=True)  # what is under way is paid for: let it end
    values, reasons = [], []
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
        try:
            if reply.finish == "length":
                raise DroppedError("the reply is cut off")
            values.append(read(last_line(reply.text)))
        except DroppedError as error:
            reasons.append(error.message)
    if not values:
        raise DroppedError(reasons[0])
    agreement = sum(key(value) == key(values[0]) for value in values) / len(replies)
    if agreement < sampling.agreement:
        raise DroppedError("too few samples agree")
    return Decision(values[0], agreement)


def operators(text: str) -> Hashable:
    """Queries and trees agree if they have the same operators in the same order."""
    return tuple(STRUCTURE.findall(text))


def sameness(value: Any) -> Hashable:
    """Plans agree if their letters do up to the order of `+`; lists if they are as long; texts up to spelling."""
    if isinstance(value, Expression):
        return letters_key(value)
    return len(value) if isinstance(value, list) else normalise(value)
