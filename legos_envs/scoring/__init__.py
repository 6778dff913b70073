"""What scores episodes: answers, rubrics, judges, ratings, sandboxes."""
