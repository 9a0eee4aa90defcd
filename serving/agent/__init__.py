"""The whole system as an MLflow agent: planner, executor and index behind MLflow's Responses interface."""
