# HAProxy as Debian has it, which is the version that tests/serving/service/test_side_by_side.py runs, on the base image
# of our own server. It reads /etc/haproxy/haproxy.cfg: mount deploy/haproxy.cfg there.
FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends haproxy && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 balancer
USER 10001
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"]
