"""The sections of a report, one per file: facts in, HTML out."""
