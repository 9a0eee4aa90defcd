"""From the registry into service: stage a version, try it, switch to it, let a canary share the traffic, roll back."""
