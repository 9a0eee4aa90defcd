"""From the registry into the live repository: deploy, staged versions, canary rollout, roll back, reconciliation."""
