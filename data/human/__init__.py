"""Human-preference and agent data sets, read from local files; none is copied into the package."""
