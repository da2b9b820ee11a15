"""A stand-in for `nvidia-smi`, over the stand-in libnvidia-ml; standard library only."""
