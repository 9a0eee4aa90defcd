"""What people use today, in the same harness: the same services, limits and scoring."""
