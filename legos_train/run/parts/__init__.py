"""The parts of a run, among them its replay buffer and its monitor."""
