"""Provisioning through the BMC: what plays do on the controller, without touching the node."""
