"""Requests in, tokens out: the engine, its scheduler, its samplers and the thread that runs it."""
