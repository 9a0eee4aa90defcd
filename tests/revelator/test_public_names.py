import revelator
from revelator import plans


def test_the_package_offers_exactly_its_sorted_names():
    assert list(revelator.__all__) == sorted(revelator.__all__) == list(plans.__all__)
    assert all(getattr(revelator, name) is getattr(plans, name) for name in revelator.__all__)
