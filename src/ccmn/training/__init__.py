"""Training of networks: the loop, networks, batches, model selection, checkpoints, ranks and streams."""
