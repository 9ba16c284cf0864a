"""Reports for people: terminal tables, HTML pages and LaTeX tables."""
