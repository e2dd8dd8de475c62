# docker build --tag kube-scheduler-extender:0.1.0 .

# Tags move. What a build is to be repeated with exactly, name by digest, for both stages at once:
# --build-arg PYTHON=python:3.11-slim@sha256:...
# docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}' tells the digest of today.
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS builder
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# Scripts in a venv name its path: it stays the same in the next stage. The venv needs no pip of its own.
# What is installed is what the locks have the hashes of, the extra otel included, and so is what builds the wheel, which
# stays in this stage; make lock renews both.
RUN python -m venv --without-pip /opt/venv \
 && pip --python /opt/venv/bin/python install --no-cache-dir --require-hashes --requirement requirements.lock \
 && pip install --no-cache-dir --root-user-action ignore --require-hashes --requirement requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY extender extender
COPY algorithms algorithms
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip --python /opt/venv/bin/python install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM ${PYTHON} AS runtime
LABEL org.opencontainers.image.title="kube-scheduler-extender" \
      org.opencontainers.image.description="A kube-scheduler HTTP extender in Python: filter, prioritize, bind and preempt with pluggable algorithms" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# For a read-only root: bytecode was compiled while building. The user has no entry in /etc/passwd, and so no home.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
COPY --from=builder /opt/venv /opt/venv
# A number, so that runAsNonRoot can be checked.
USER 65532:65532
# 8888: the verbs. 8889: probes and metrics.
EXPOSE 8888 8889
# No shell in between: the service is process 1 and gets SIGTERM.
ENTRYPOINT ["scheduler-extender"]
CMD ["serve"]
