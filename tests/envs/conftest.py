"""A file with a secret that no program in a sandbox may read."""

import pytest

SECRET = "canary-5c1f"


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets") / "canary"
    path.write_text(SECRET)
    return str(path)
