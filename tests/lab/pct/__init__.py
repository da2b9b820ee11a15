"""A stand-in for Proxmox VE's `pct`: the same reading, rewriting, locks and words, over the real LXC.

Runs on the lab's host under its own Python; standard library only.
"""
