"""Mistakes in whom the learner meets."""

from __future__ import annotations

from tests.mutants.mutant import mutants

LEAGUE = "tests/train/test_league.py"
NASH = "tests/train/test_league_nash.py"
RIVALS = "tests/train/test_rivals.py"
LINEUPS = "tests/train/test_rival_lineups.py"

MUTANTS = [
    *mutants(
        "legos_train/league/rival_league.py",
        f"{LINEUPS} {RIVALS}",
        ("focus-never-moves", "takes[(place + step) % len(takes)]", "takes[0]", "one learner chooses every game"),
        (
            "anybody-is-met",
            "if len(learners) == 1 or name in self.rivals[focus].opponents",
            "if len(learners) >= 1",
            "`opponents` of a learner has no effect",
        ),
        (
            "the-unwilling-learn",
            "learns = len(own[at]) == 1 or others <= {*self.rivals[learner].opponents}",
            "learns = True",
            "a learner learns from games against those it does not want to meet",
        ),
        (
            "one-share-for-all",
            "own = self.rivals[focus].latest",
            "own = None",
            "`latest` of a learner has no effect",
        ),
        (
            "losses-are-wins",
            "against.add(other, role, got[learner], theirs",
            "against.add(other, role, theirs, got[learner]",
            "a learner's results are those of its opponent",
        ),
        (
            "the-others-members",
            "(of := self._parts(m)[1]) is None or of in among",
            "self._parts(m)",
            "snapshots of learners that nobody asked for are met",
        ),
    ),
    *mutants(
        "legos_train/run/all_actions/decisions.py",
        RIVALS,
        (
            "values-against-nobody",
            "adapter = None if member == actors.BASE else actors.POLICY if learner else member or actors.POLICY",
            "adapter, learner = (None if member == actors.BASE else member or actors.POLICY), None",
            "the policy of a learner is looked for under another name",
            "tests/train/test_population.py::test_every_action_of_every_learner",
        ),
        (
            "gains-of-the-first",
            "learner = learner_in(played[1][info.player])",
            "learner = learner_in(played[1][0])",
            "a learner learns from the decisions of the other",
        ),
    ),
    *mutants(
        "legos_train/evaluation/eval_tasks.py",
        RIVALS,
        (
            "all-measured-as-the-first",
            "players = arena.players(slot, place)",
            "players = arena.players(slot)",
            "each learner's numbers are those of the first",
        ),
    ),
    *mutants(
        "legos_train/league/modes.py",
        LEAGUE,
        (
            "pfsp-likes-the-weak",
            "math.log(1 - population.against.win_rate(name))",
            "math.log(population.against.win_rate(name))",
            "members that are beaten anyway are met most",
        ),
        ("pfsp-without-power", "population.power * math.log", "math.log", "league.pfsp_power does nothing"),
        (
            "fsp-first-only",
            "_both(population.members, [1.0] * len(population.members))",
            "_both(population.members, [1.0] + [0.0] * (len(population.members) - 1))",
            "only the oldest is met",
            "tests/train/test_league.py::test_fictitious_play_and_fixed_opponents_are_drawn_evenly",
        ),
    ),
    *mutants(
        "legos_train/league/payoffs.py",
        LEAGUE,
        (
            "draws-are-wins",
            "points = 0.5 if same(mine, theirs) else",
            "points = 1.0 if same(mine, theirs) else",
            "a draw counts as a win of the learner",
        ),
        (
            "never-forgets",
            "        self.recent_points *= FORGET\n",
            "",
            "old results keep their points and lose their games",
        ),
        ("payoff-absolute", "(a - b) / 2", "a", "payoffs are absolute where the sum is not zero"),
        (
            "win-rate-without-prior",
            "+ PRIOR / 2) / (games + PRIOR)",
            ") / (games or 1)",
            "a single game decides how often a member is met",
        ),
    ),
    *mutants(
        "legos_train/league/nash.py",
        NASH,
        (
            "column-player-maximises",
            "_maximin(table), _maximin(-table.T)",
            "_maximin(table), _maximin(table.T)",
            "the second side helps the first",
        ),
        (
            "nash-symmetric-part",
            "(table - table.T) / 2",
            "(table + table.T) / 2",
            "payoffs are taken from the part that cancels",
        ),
    ),
    *mutants(
        "legos_train/league/seating.py",
        LEAGUE,
        ("learner-sits-first", "learner = (turn + step) % sides", "learner = 0", "the learner never plays second"),
        (
            "opponents-drawn-alike",
            'f"league/{step}/{played}"',
            'f"league/{step}"',
            "all rounds of a step meet the same member",
        ),
        (
            "latest-ignored",
            "math.floor((number + 1) * latest + phase) > mirrored",
            "False",
            "league.latest does nothing",
        ),
        ("draw-past-the-end", "        if at < upto:\n", "        if at > upto:\n", "unlikely members are drawn most"),
    ),
    *mutants(
        "legos_train/league/league.py",
        LEAGUE,
        (
            "snapshot-every-step",
            "return (step - self.settings.start_from) % self.settings.snapshot_every == 0",
            "return True",
            "league.snapshot_every does nothing",
        ),
        ("newest-leaves", "min(self.pool, key=", "max(self.pool, key=", "the newest leaves the pool"),
        (
            "unscored-observed",
            'if plan and e.outcome != "unscored"]',
            "if plan]",
            "games without a judge count as draws",
        ),
        (
            "snapshot-without-rating",
            "self.ratings[member] = self.ratings[learner]\n",
            "pass\n",
            "it begins as a stranger",
        ),
    ),
]
