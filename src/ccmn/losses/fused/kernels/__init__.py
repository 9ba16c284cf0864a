"""Triton kernels, imported on CUDA devices only."""
