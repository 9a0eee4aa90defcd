"""`revelator model promote` and `revelator model rollback`, and the gate between a challenger and the alias."""
