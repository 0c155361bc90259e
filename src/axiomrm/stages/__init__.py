"""The stages of the pipeline; each module has ``run(context) -> metrics``."""
