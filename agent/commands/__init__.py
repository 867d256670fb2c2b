"""The commands of `nodegate`, one module each; every module has `register(app)`."""
