"""Performance and learning, measured; a package, so that no installed one of the same name comes before it."""
