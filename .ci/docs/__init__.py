"""Builds the documentation site."""
