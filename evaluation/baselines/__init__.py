"""What people use today, each as a short file of its own, in the same harness: same services, budgets and scoring."""
