"""Settings of all tests. hypothesis has no deadline: tests may be slow on a busy machine."""

from hypothesis import settings

settings.register_profile("ccmn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ccmn")
