"""The collector is set for long service for a while, and is then what it was; memory goes back to the system."""

import gc

import psutil

from serving import latency


def test_after_a_while_settled_the_collector_is_as_before():
    before = gc.get_threshold()
    with latency.use_tuned_collector():
        assert gc.get_freeze_count() > 0 and gc.get_threshold()[0] == latency.YOUNG_OBJECTS
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == before


def test_memory_that_was_freed_below_what_is_still_used_goes_back_to_the_system():
    own = psutil.Process()
    blocks = [b"x" * 2**16 for _ in range(2000)]
    before, last = own.memory_info().rss, blocks.pop()
    blocks.clear()
    latency.trim_memory()
    assert before - own.memory_info().rss > 100 * 2**20 and len(last) == 2**16
