"""The command line: `subagents …`. A file for each family of commands; `application` puts them together, `__main__` runs them."""
