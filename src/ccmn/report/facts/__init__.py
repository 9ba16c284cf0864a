"""What a report shows, worked out and not yet drawn: a frozen dataclass per file."""
