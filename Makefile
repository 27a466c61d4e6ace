# Short names for `python3 dev.py WORD`, which does the work. Arguments: make test ARGUMENTS="-k permits"
PYTHON ?= python3
WORDS := demo test check lint types layers build examples sync

.DEFAULT_GOAL := help
.PHONY: help $(WORDS)

help:
	@$(PYTHON) dev.py help

$(WORDS):
	@$(PYTHON) dev.py $@ $(ARGUMENTS)
