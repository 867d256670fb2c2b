"""Many nodes at once: the playbooks, run by ansible-runner, with progress by host and phase."""
