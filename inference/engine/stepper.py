"""The engine's steps: rows for waiting requests, a forward pass, sampling, delivery of what has finished.

A step is: apply aborts, give rows to branches and to waiting prompts, feed every row its next tokens, draw for every
request, deliver what ended. With lookahead, a step's feeding comes before the previous step's drawing (`flight`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inference.engine import branch_states, recovery
from inference.engine.delivery import Delivery
from inference.engine.drafts import draft
from inference.engine.drawing import draw_all
from inference.engine.even_stretches import Run
from inference.engine.flight import Flight, Submission
from inference.engine.guessing import guessable
from inference.engine.model_runner import ModelRunner
from inference.engine.rows import Finished, Outcome, Row
from inference.engine.sampling import Floats
from inference.engine.scheduler import Plan, Scheduler
from inference.forward import capacity_for
from inference.types import Completion

_ROOM_AHEAD = 32
_HELD = 4  # states of waiting branches may take max_kv_bytes / _HELD


class Stepper:
    """Runs the rows of a scheduler over one KV cache.

    Args:
        runner: feeds rows to the model.
        delivery: maps rows back to requests.
        tokenizer: for stop texts; None for an engine that handles no text.
        max_rows: as for `Engine`.
        max_kv_bytes: as for `Engine`.
        admit_tokens: as for `Engine`.
        share_rows: as for `Engine`.
        lookahead: whether to submit the next pass before this one's tokens are known.
    """

    def __init__(
        self,
        runner: ModelRunner,
        delivery: Delivery,
        tokenizer: Any,
        *,
        max_rows: int,
        max_kv_bytes: int,
        admit_tokens: int,
        share_rows: bool,
        lookahead: bool,
    ) -> None:
        self._runner, self._delivery, self._tokenizer = runner, delivery, tokenizer
        self.kv = runner.new_kv()
        self.max_kv_bytes = max_kv_bytes
        self._cuts_back = runner.forward.batches and not runner.forward.stateful
        self.aborts: set[int] = set()
        self._failed_steps = 0
        self._flight: Flight | None = None
        self.lookahead = lookahead
        self.drafts = delivery.drafts
        self.scheduler = Scheduler(
            max_rows,
            row_limit=self.row_limit,
            token_budget=max(admit_tokens, 1),
            share=share_rows and runner.forward.batches,
            says=self._says,
        )

    def step(self) -> list[Completion]:
        done = self.settle()
        if not self.scheduler.rows and self.kv.nbytes * 2 > self.max_kv_bytes:
            self.kv.reset()  # one long prompt must not keep every later row long
        ahead = self.lookahead and (self._flight is not None or not self._delivery.speculating)
        done += self._step_ahead() if ahead else self._step_at_once()
        return sorted(done, key=lambda c: c.request_id)

    def _step_at_once(self) -> list[Completion]:
        """Feeds every row and draws for it."""
        plan = self.scheduler.plan()
        rows = self.scheduler.rows
        if not rows:
            return []
        outcomes: dict[Row, Outcome] = {}
        deeper: dict[Row, Floats] = {}
        try:
            if self._cuts_back and self._delivery.speculating:
                draft(rows, self.drafts)
            self._prepare(plan)
            for batch, logits in self._runner.feed(self.kv, rows):
                drafted = logits.ndim == 3
                outcomes.update(draw_all(batch, logits[:, 0] if drafted else logits))
                if drafted:
                    deeper |= {row: own[1:] for row, own in zip(batch, logits)}
        except Exception as error:  # whatever the model raised, find the rows at fault and continue with the others
            return self._recover(error)
        self._failed_steps = 0
        done, finished = self._advance(rows, outcomes)
        done += self._deliver(finished)
        if deeper:
            done += self._accept(deeper)
        self._delivery.report(self.scheduler.rows)
        return done

    def _accept(self, deeper: dict[Row, Floats]) -> list[Completion]:
        """Advances through the rows' drafts as far as they match the draws; logits (length, V) after each token."""
        done: list[Completion] = []
        depth = 0
        while going := [r for r in self.scheduler.rows if r in deeper and r.tokens[-1] == r.draft[depth]]:
            self.drafts.taken += sum(depth < row.guessed for row in going)
            logits = np.stack([deeper[row][depth] for row in going])
            failed, finished = self._advance(going, draw_all(going, logits))
            done += failed + self._deliver(finished)
            depth += 1
            deeper = {row: deeper[row] for row in going if depth < len(row.draft)}
        for row in self.scheduler.rows:
            row.draft = ()
        return done

    def _step_ahead(self) -> list[Completion]:
        """Submits the next pass, then lets the current one land."""
        error: Exception | None = None
        flight, following, outcomes = self._flight, None, dict[Row, Outcome]()
        self._flight = None
        try:
            if flight is None:
                flight = self._launch(None)
            if flight is not None and self._goes_on():
                following = self._launch(flight)
        except Exception as caught:
            error = caught
        try:
            fed = [] if flight is None else flight.keep(self.scheduler.rows)
            if flight is not None:
                outcomes = flight.land()
        except Exception as caught:
            return self._recover(caught)
        if flight is not None:
            self._failed_steps = 0
        done, finished = self._advance(fed, outcomes)
        if error is None and flight is not None and following is not None:
            parked = self._delivery.leaving(finished)
            self._flight = following if following.confirm(flight, self.scheduler.rows, parked) else None
        done += self._deliver(finished)
        self._delivery.report(self.scheduler.rows)
        return done if error is None else done + self._recover(error)

    def _goes_on(self) -> bool:
        """Whether the device can draw for all rows, and some rows will be fed its draws."""
        rows = self.scheduler.rows
        if not all(guessable(cohort.params) for row in rows for cohort in row.cohorts):
            return False
        return any(len(row.tokens) + 1 < cohort.params.max_tokens for row in rows for cohort in row.cohorts)

    def _launch(self, before: Flight | None) -> Flight | None:
        """Submits a pass over all rows; rows of the previous pass are fed the device's draws from it."""
        if before is not None:
            before.keep(self.scheduler.rows)
        plan = self.scheduler.plan()
        if not self.scheduler.rows:
            return None
        run = Submission(self._runner.forward, before)
        self._prepare(plan, run)
        flight = Flight(self.scheduler.rows, {} if before is None else before.places, self.kv)
        run.take(flight.members)
        for members, logits in self._runner.feed(self.kv, flight.members, run):
            flight.add(members, logits)
        if before is None:
            flight.launched()
        return flight

    def _prepare(self, plan: Plan, run: Run | None = None) -> None:
        """Room, copies, states and cached prefixes for the rows of a plan."""
        rows = self.scheduler.rows
        # Room for a few tokens more than this step needs: growing copies everything, so it should be rare.
        ahead = max(min(row.reach, row.next + len(row.draft) + _ROOM_AHEAD) for row in rows)
        self.kv.reserve(len(rows), ahead)
        self.kv.copy(plan.copies)
        if self._runner.forward.stateful:
            branch_states.resume(self.kv, rows)
            branch_states.hold(self.kv, rows, self.max_kv_bytes // _HELD)
        self._runner.warm(self.kv, plan.admitted, run)

    def _advance(self, fed: Iterable[Row], outcomes: dict[Row, Outcome]) -> tuple[list[Completion], list[Finished]]:
        """Extends rows by their draws, and ends those whose logits are not finite."""
        failed: list[Completion] = []
        for row in [row for row in fed if row not in outcomes]:
            failed += self._fail(row, "the model's logits are not finite")
        return failed, self.scheduler.advance(outcomes)

    def settle(self) -> list[Completion]:
        aborted, self.aborts = self.aborts, set()
        done = self._deliver(self.scheduler.remove(aborted)) if aborted else []
        if not self.scheduler.rows:
            self._flight = None
        return done

    def abandon(self, error: str) -> list[Completion]:
        done = [
            replace(c, finish_reason="error", error=error)
            for c in self._deliver(self.scheduler.remove(set(self._delivery.tickets)))
        ]
        self._flight = None
        self.aborts.clear()
        self.kv.reset()
        self._runner.drop_caches()
        return done

    def _says(self, tokens: Sequence[int], stop: tuple[str, ...]) -> bool:
        """Whether the end of the text contains a stop text; every token contributes at least one byte."""
        longest = max(len(text.encode("utf-8", "surrogatepass")) for text in stop)
        ending = self._tokenizer.decode(list(tokens[-longest - 8 :]))
        return any(text in ending for text in stop)

    def row_limit(self, reach: int) -> int:
        """How many rows may hold `reach` entries each."""
        return self.max_kv_bytes // (capacity_for(reach) * self._runner.bytes_per_entry + self._runner.bytes_per_row)

    def longest(self, rows: int, most: int) -> int:
        """The most entries, up to `most`, that each of `rows` rows may hold; 0: none."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.row_limit(middle) >= rows else (low, middle - 1)
        return low

    def _deliver(self, finished: Iterable[Finished], error: str | None = None) -> list[Completion]:
        return self._delivery.deliver(finished, self.kv, error)

    def _fail(self, row: Row, error: str) -> list[Completion]:
        """Ends a row's requests; branches waiting on its slot are recomputed in a clean slot."""
        for branch in row.branches:
            branch.restart()
        self.kv.scrub(row.slot)
        return self._deliver(self.scheduler.fail(row), error)

    def _recover(self, error: Exception) -> list[Completion]:
        """After an exception in a forward pass: rows that fail alone end with the error, the others start over.

        Keys and values may be half written, so all are forgotten; tokens are not. If twice in a row no row fails alone
        (memory may be short), all are ended, so that the engine never spins.
        """
        self._failed_steps += 1
        guilty = recovery.guilty_rows(self._runner, self.kv, self.scheduler.rows)
        if not guilty and self._failed_steps > 1:
            guilty = [(row, f"{type(error).__name__}: {error}") for row in self.scheduler.rows]
        return [completion for row, text in guilty for completion in self._fail(row, text)]
