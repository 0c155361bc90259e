"""One algorithm a file: the paper, the equation, our numbered deviations; ``build`` knows them by kind."""
