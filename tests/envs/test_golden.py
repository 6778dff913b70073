"""Every game still plays its golden transcripts."""

import json

import pytest

from tests.envs import golden


@pytest.mark.parametrize(("id", "seed"), golden.NAMES)
def test_golden_transcript(id, seed):
    file = golden.path(id, seed)
    assert file.exists(), f"{file.name} is missing; write it with `python -m tests.envs.golden`"
    assert golden.played(id, seed) == json.loads(file.read_text())


def test_no_transcript_is_left_of_an_env_that_is_gone():
    assert {file.name for file in golden.FOLDER.iterdir()} == {golden.path(*name).name for name in golden.NAMES}
