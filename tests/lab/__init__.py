"""The lab: a Proxmox VE host and its containers, nested in private namespaces on this machine."""
