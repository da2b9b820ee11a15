"""Proxmox VE containers and their GPUs: the thinking behind the modules, without Ansible."""
