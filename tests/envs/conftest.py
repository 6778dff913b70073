import pettingzoo
import pytest


@pytest.fixture(autouse=True)
def registry_left_as_it_was():
    before = dict(pettingzoo.aec_registry)
    yield
    pettingzoo.aec_registry.clear()
    pettingzoo.aec_registry.update(before)
