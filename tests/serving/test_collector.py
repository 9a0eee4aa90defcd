"""The collector is set for long service for a while, and is then what it was."""

import gc

from serving import collector


def test_after_a_while_settled_the_collector_is_as_before():
    before = gc.get_threshold()
    with collector.settled():
        assert gc.get_freeze_count() > 0 and gc.get_threshold()[0] == collector.YOUNG_OBJECTS
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == before
