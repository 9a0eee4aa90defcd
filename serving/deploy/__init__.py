"""From the registry into service: lay out a version, try it, switch to it, give a canary a share, roll back."""
