"""What a run tells about itself: metrics, diagnostics, alarms, failures, and rollouts for people to read."""
