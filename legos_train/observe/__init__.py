"""What people look at: dashboard, trackers, report, viewer. Reads files only."""
