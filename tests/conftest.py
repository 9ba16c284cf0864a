"""Settings of every test: hypothesis keeps no deadline, since a busy machine is not a defect."""

from hypothesis import settings

settings.register_profile("ccmn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ccmn")
