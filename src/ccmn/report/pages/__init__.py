"""Self-contained HTML pages, one per file."""
