"""The optional VM tier: the Proxmox host is a QEMU machine with its own kernel, so NVIDIA's majors are real.

The containers' files, keys, disks and `pct` are the container lab's; only what plays the hardware differs.
"""
