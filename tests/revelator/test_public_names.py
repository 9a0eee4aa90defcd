import revelator
from revelator import language


def test_the_package_offers_exactly_its_sorted_names():
    assert list(revelator.__all__) == sorted(revelator.__all__) == list(language.__all__)
    assert all(getattr(revelator, name) is getattr(language, name) for name in revelator.__all__)
