"""`revelator promote` and `revelator rollback`, and the gate between a challenger and the alias."""
