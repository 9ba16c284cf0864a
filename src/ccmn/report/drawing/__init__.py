"""Small drawings as SVG text, one kind per file."""
