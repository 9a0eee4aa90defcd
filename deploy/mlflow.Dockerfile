# MLflow's server with the drivers of its database and its artifact store.
FROM ghcr.io/mlflow/mlflow:v3.17.2
RUN pip install --no-cache-dir psycopg2-binary==2.9.11 boto3==1.40.55
