"""What lies in a home folder: settings, the running service, the versions of the revelator."""
