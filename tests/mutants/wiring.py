"""Mistakes in how the parts of a run are put together: weights, schedules, publishing."""

from __future__ import annotations

from tests.mutants.mutant import mutants

WIRING = "tests/train/test_wiring.py"
RATES = f"{WIRING}::test_the_learning_rate_is_warmed_up_and_decays"
EPOCHS = f"{WIRING}::test_every_epoch_goes_over_everything_once"
KL = f"{WIRING}::test_the_weight_of_the_kl_goes_down[ema]"
BEST = f"{WIRING}::test_best_is_the_best_that_was_measured[ema]"
AVERAGE = f"{WIRING}::test_last_and_average_are_what_they_are_called"
PUBLISH = f"{WIRING}::test_every_step_plays_with_the_weights_of_the_step_before[ema]"

MUTANTS = [
    *mutants(
        "legos_train/run/finish.py",
        WIRING,
        (
            "adapter-holds-last",
            'backend.write(weights[published], run.path / "adapter"',
            'backend.write(weights["last"], run.path / "adapter"',
            "RUN/adapter holds the last weights and is labelled average",
            f"{WIRING}::test_the_adapter_is_the_better_of_both_and_says_which[uniform-average]",
        ),
        (
            "average-file-holds-last",
            '"average": backend.average(step)} if average',
            '"average": backend.snapshot(step)} if average',
            "RUN/average holds the last weights",
            f"{AVERAGE}[ema]",
        ),
    ),
    *mutants(
        "legos_train/run/periodic_eval.py",
        WIRING,
        (
            "average-measured-on-last",
            "results[AVERAGE] = (average, _measured(parts, AVERAGE, tasks, together))",
            "results[AVERAGE] = (average, _measured(parts, actors.POLICY, tasks, together))",
            "the average is measured on the last weights",
            f"{WIRING}::test_the_numbers_of_every_step_are_those_of_its_weights_and_of_its_average[ema]",
        ),
        (
            "average-published-from-last",
            "average = parts.backend.average(parts.learner.step)",
            "average = parts.backend.snapshot(parts.learner.step)",
            "the last weights are measured as the average",
            f"{WIRING}::test_the_numbers_of_every_step_are_those_of_its_weights_and_of_its_average[ema]",
        ),
        (
            "best-keeps-the-worst",
            "sign * numbers[key] > sign * parts.best.numbers[key]",
            "sign * numbers[key] < sign * parts.best.numbers[key]",
            "RUN/best holds the worst weights",
            BEST,
        ),
        (
            "best-keeps-the-newest",
            "parts.best is None or sign * numbers[key] > sign * parts.best.numbers[key]",
            "True",
            "RUN/best holds the weights measured last",
            BEST,
        ),
        (
            "best-without-sign",
            "sign * numbers[key] > sign * parts.best.numbers[key]",
            "numbers[key] > parts.best.numbers[key]",
            "where less is better, RUN/best holds the worst",
            BEST,
        ),
    ),
    *mutants(
        "legos_train/model/learner.py",
        WIRING,
        ("epochs-ignored", "range(config.optim.epochs)", "range(1)", "optim.epochs does nothing", EPOCHS),
        (
            "minibatches-ignored",
            "batch.minibatches(config.optim.minibatches,",
            "batch.minibatches(1,",
            "optim.minibatches does nothing",
            EPOCHS,
        ),
        (
            "epochs-in-one-order",
            "_mix(config.seed, step, epoch)",
            "_mix(config.seed, step, 0)",
            "all epochs go over the same minibatches",
            EPOCHS,
        ),
        (
            "lr-without-decay",
            "o.lr * (1 - (1 - o.lr_end) * done) *",
            "o.lr *",
            "the learning rate does not decay",
            RATES,
        ),
        ("lr-without-warmup", " * min(1.0, step / (o.warmup + 1))", "", "there is no warm-up", RATES),
        (
            "lr-warmup-off-by-one",
            "step / (o.warmup + 1)",
            "step / max(o.warmup, 1)",
            "warm-up ends a step too early",
            RATES,
        ),
        (
            "lr-decay-off-by-one",
            "done = (step - 1) / max(steps - 1, 1)",
            "done = step / steps",
            "it starts below the peak",
            RATES,
        ),
        (
            "lr-only-logged",
            "self.backend.optim_step(self.learning_rate(step))",
            "self.backend.optim_step(config.optim.lr)",
            "the schedule is logged and not used",
            RATES,
        ),
        (
            "kl-not-scheduled",
            "self.config.loss.fixed(self.kl_weight(step),",
            "self.config.loss.fixed(self.config.loss.kl * self.kl_factor,",
            "the weight of the KL stays as it was",
            KL,
        ),
        (
            "average-not-folded",
            "        self.backend.fold_average(step)\n",
            "        self.backend.fold_average(1)\n",
            "the average never learns what step it is",
            f"{AVERAGE}[uniform]",
        ),
    ),
    *mutants(
        "legos_train/loss/loss_settings.py",
        WIRING,
        (
            "kl-constant",
            "float(self.kl * (self.kl_end / self.kl) ** done)",
            "float(self.kl)",
            "a geometric KL schedule is constant",
            KL,
        ),
        (
            "kl-linear-constant",
            "self.kl + (self.kl_end - self.kl) * done",
            "self.kl",
            "a linear KL schedule is constant",
            "tests/train/test_loss.py",
        ),
        (
            "kl-geometric-is-linear",
            'if self.kl_schedule == "geometric" and self.kl and self.kl_end:',
            'if self.kl_schedule == "linear" and self.kl and self.kl_end:',
            "the schedules are exchanged",
            KL,
        ),
    ),
    *mutants(
        "legos_train/model/weight_average.py",
        WIRING,
        (
            "ema-without-correction",
            "{name: a / self.total for name, a in self.weights.items()}",
            "dict(self.weights)",
            "an exponential average is drawn towards 0",
            f"{AVERAGE}[ema]",
        ),
    ),
    *mutants(
        "legos_train/config/sections.py",
        WIRING,
        (
            "uniform-ignores-start",
            ' or (self.kind == "uniform" and step <= self.start * steps)',
            "",
            "a uniform average goes over the whole run",
            f"{AVERAGE}[uniform]",
        ),
        (
            "ema-decay-swapped",
            "keep = self.decay if",
            "keep = 1 - self.decay if",
            "an exponential average forgets what it should keep",
            f"{AVERAGE}[ema]",
        ),
        (
            "polynomial-is-the-mean",
            "else (step - 1) / (step + self.degree)",
            "else (step - 1) / step",
            "early weights count as much as late ones",
            "tests/train/test_weight_average.py",
        ),
        (
            "uniform-weighs-the-newest",
            "return total / (total + 1), total + 1",
            "return 0.5, total + 1",
            "a uniform average weighs late weights more",
            f"{AVERAGE}[uniform]",
        ),
    ),
    *mutants(
        "legos_train/run/trainer.py",
        WIRING,
        (
            "proof-every-second-step",
            "        if changed:\n            self.parts.sync.new_policy",
            "        if changed and self.learner.step % 2 == 0:\n            self.parts.sync.new_policy",
            "every second publish is not proven",
            "tests/train/test_train.py::test_an_engine_that_keeps_serving_old_weights_is_an_error",
        ),
        (
            "publish-skipped-every-second-step",
            "        self.publish(probes(self.batch, numbers))\n",
            "        if self.learner.step % 2 == 0:\n            self.publish(probes(self.batch, numbers))\n",
            "every second batch is played by the weights before",
            PUBLISH,
        ),
        (
            "staleness-of-replay",
            "max_staleness=max(stale, config.replay.reuse - 1),",
            "max_staleness=0,",
            "a batch that is used again is thrown away",
            "tests/train/test_replay.py::test_a_reused_batch_is_trained_on_again_without_playing",
        ),
    ),
]
