"""The NVIDIA kernel side of the lab's host, played by existing drivers.

Runs on the host at boot, as `modprobe` and as `nvidia-modprobe`; standard library only. Bind mounts show it
where programs look: /proc/devices, /proc/driver/nvidia, the PCI devices in sysfs, /lib/modules.
"""
