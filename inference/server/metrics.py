"""The metrics that `/metrics` reports to Prometheus. One registry per application, so that several fit in a process."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters and gauges; `watch` adds a gauge that is read at every scrape.

    Args:
        served: the names of the adapters loaded now.
    """

    def __init__(self, served: Callable[[], Collection[str]] = tuple) -> None:
        self._served = served
        self._named: dict[str, int] = {}  # tokens by adapter
        self.registry = CollectorRegistry()
        self.answers = Counter("legos_answers", "Answers by status", ["status"], registry=self.registry)
        self.prompt_tokens = Counter("legos_prompt_tokens", "Prompt tokens", registry=self.registry)
        self.cached_tokens = Counter("legos_cached_tokens", "Prompt tokens found in the cache", registry=self.registry)
        self.tokens = Counter("legos_generated_tokens", "Tokens generated", ["adapter"], registry=self.registry)
        self.finished = Counter("legos_completions", "Completions by end", ["reason"], registry=self.registry)
        self.first_token = Histogram(
            "legos_first_token_seconds", "Time to the first token of a stream", buckets=SECONDS, registry=self.registry
        )
        self.request_seconds = Histogram(
            "legos_request_seconds", "Time of a whole completion", buckets=SECONDS, registry=self.registry
        )
        self.publish_seconds = Histogram(
            "legos_publish_seconds", "Time the engine spent on publishing", buckets=SECONDS, registry=self.registry
        )

    def generated(self, adapter: str | None, count: int) -> None:
        """Counts tokens by adapter. Adapters that are gone are counted together, so that labels do not pile up."""
        name = adapter or ""
        if name not in self._named:
            for gone in self._named.keys() - {"", *self._served()}:
                self.tokens.labels("(unloaded)").inc(self._named.pop(gone))
                self.tokens.remove(gone)
        self._named[name] = self._named.get(name, 0) + count
        self.tokens.labels(name).inc(count)

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is read at every scrape."""
        Gauge(name, about, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
