"""How likely a language model's answer is right: what two models say of the same passages is weighed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import Unavailable
from revelator.trace import Passage
from serving.models.answerability import WeighedGenerator, weigh
from serving.protocols import GenerateRequest, Reading

probabilities = st.floats(0, 1)
PASSAGES = (Passage("1", "Harbour", "The harbour was founded by Ines Calloway."),)


class Model:
    """A generator with one opinion, which notes what it was asked."""

    def __init__(self, probability):
        self.probability = probability
        self.asked = []

    async def answer(self, request):
        self.asked.append(request)
        return Reading("It is p.", ("p",), 7, 3, probability=self.probability)


@given(probabilities, probabilities, probabilities, st.booleans())
def test_a_surer_model_never_makes_an_answer_less_likely(own, lower, higher, is_silent):
    lower, higher = sorted((lower, higher))
    said = None if is_silent else own
    assert 0 < weigh(said, lower) <= weigh(said, higher) < 1
    assert weigh(lower, own) <= weigh(higher, own)


async def test_a_reading_keeps_its_answer_and_cost_and_is_as_likely_as_both_models_make_it():
    writer, reader = Model(0.9), Model(0.2)
    request = GenerateRequest("read", "Who founded the harbour?", PASSAGES)
    reading = await WeighedGenerator(writer, reader).answer(request)
    assert (reading.answers, reading.tokens_in, reading.probability) == (("p",), 7, weigh(0.9, 0.2))
    assert writer.asked == reader.asked == [request]


async def test_an_endpoint_without_log_probabilities_is_judged_by_the_reader_alone():
    request = GenerateRequest("read", "Who founded the harbour?", PASSAGES)
    readings = [await WeighedGenerator(Model(None), Model(p)).answer(request) for p in (0.01, 0.99)]
    assert readings[0].probability < 0.33 < readings[1].probability


async def test_a_reader_that_is_gone_costs_no_answer_and_a_language_model_that_is_gone_is_named():
    class Gone:
        async def answer(self, request):
            raise Unavailable("gone", where="model generator")

    request = GenerateRequest("read", "Who founded the harbour?", PASSAGES)
    reading = await WeighedGenerator(Model(0.9), Gone()).answer(request)
    assert (reading.answers, reading.probability) == (("p",), 0.9)
    with pytest.raises(Unavailable, match="gone"):
        await WeighedGenerator(Gone(), Model(0.9)).answer(request)


async def test_what_reads_no_passages_is_the_language_models_alone():
    writer, reader = Model(None), Model(0.2)
    merged = await WeighedGenerator(writer, reader).answer(GenerateRequest("merge", "Who?"))
    assert (merged.probability, reader.asked) == (None, [])
