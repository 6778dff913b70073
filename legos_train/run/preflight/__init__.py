"""Before the first step: settings that contradict each other or do nothing, and what a run will cost."""
