"""Where episodes are generated (in a thread, a process, at servers, on ranks), and how weights get there."""
