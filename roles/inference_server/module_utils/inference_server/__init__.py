"""What the role inference_server decides, as pure functions: no Ansible, no host."""
