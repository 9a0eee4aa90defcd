"""`revelator data self-train`: a model's own plans become training data."""
