"""Golden transcripts: what every registered game plays and says for a seed, kept in git.

A difference means that episodes of a published environment have changed. If that is intended, give the environment a
new version, or, while it is unreleased, write the transcripts anew and read the diff:

    python -m tests.envs.golden [ID ...]
"""

import asyncio
import json
import sys
from pathlib import Path

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.wrappers import RecordTranscript

FOLDER = Path(__file__).with_name("golden")
SEEDS = (0, 1)
NAMES = [(id, seed) for id in legos_envs.registered() for seed in SEEDS]


def path(id, seed):
    return FOLDER / f"{id}_seed{seed}.json"


def played(id, seed):
    env = RecordTranscript(legos_envs.make(id))
    asyncio.run(legos_envs.play(env, make_policy("random", env), seed))
    return env.transcript()


def main(ids):
    FOLDER.mkdir(exist_ok=True)
    for id, seed in NAMES:
        if ids and id not in ids:
            continue
        path(id, seed).write_text(json.dumps(played(id, seed), indent=1, ensure_ascii=False) + "\n")
        print(path(id, seed).name)


if __name__ == "__main__":
    main(sys.argv[1:])
