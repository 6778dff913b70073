"""Updates over all legal actions: the decision points, the value of each action, and a tabular version."""
