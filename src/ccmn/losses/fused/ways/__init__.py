"""How the kernels are called, one file per way of summing pairs. Imported on CUDA devices with Triton only."""
