# MLflow's server with the drivers of its database and its artifact store, on the base image of our own server.
FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
# the versions of requirements.lock also for what mlflow itself needs
COPY requirements.lock /tmp/requirements.lock
RUN pip install --no-cache-dir -c /tmp/requirements.lock mlflow psycopg2-binary==2.9.11 boto3==1.40.55 \
 && useradd --uid 10001 --create-home mlflow
USER 10001
