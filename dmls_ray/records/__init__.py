"""The record of a run: its data model, validation and provenance."""
