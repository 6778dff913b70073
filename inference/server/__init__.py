"""The OpenAI-compatible server: `create_app(Settings(...))`, or `legos serve` on the command line.

protocol.py: what requests and answers look like · guard.py: who may ask, and how much · rendering.py: messages to
tokens and back · generation.py: from a request to tokens and to an answer · adapters.py: loading and publishing ·
app.py: the routes · metrics.py: what Prometheus reads.
"""
