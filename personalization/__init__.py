"""Personal criteria from typed, allow-listed profile slots; nobody's text reaches the judge."""
