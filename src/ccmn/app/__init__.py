"""Applications: command line, reports, web app for label review, and the demo."""
