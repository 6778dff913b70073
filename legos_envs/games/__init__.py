"""Games: rules, exact truth where it can be had, scripted players."""
