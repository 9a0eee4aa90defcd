"""What runs inside the processes of Triton's models: the thin model.py files of model_repo/ call these modules."""
