"""What is measured, and by which rule: functions of values, without models, files or servers."""
