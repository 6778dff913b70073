"""Evaluation without training: policies in every seat, on paired seeds, with intervals.

options.py: what can be said · setting.py, env_words.py: what it means · games.py: what is played · playing.py: how,
beside failing endpoints · progress.py: how far it is · journal.py: what is kept of it · outcomes.py: how a game ended
for a seat · intervals.py: what the numbers are good for · exactly.py, exact_part.py: numbers without sampling noise ·
summary.py: one row per pairing · duel.py: the same for training · crossplay.py: all pairs, ratings · text.py: people.
"""
