"""Agents that the tests run."""
