# The environment is built from lock files in one stage, by hash, and copied into the next, which has no compiler and no pip
# cache. What runs is not root, and needs no file system but its own to read.
# `make base-image` puts the digest of the day behind the name, and `make image` does so if there is none. Until then the name is
# no valid one, so that no build takes whatever the tag means at the moment; --build-arg BASE=... names another base.
ARG BASE=python:3.12-slim@run-make-image
FROM ${BASE} AS build
ARG LOCK=requirements.lock
WORKDIR /src
COPY requirements.lock requirements-wasm.lock requirements-build.lock ./
# No pip goes along: the builder's works on the environment of the image from outside.
RUN python -m venv builder \
 && python -m venv --without-pip /opt/custom-scheduler \
 && PIP_PYTHON=/opt/custom-scheduler/bin/python builder/bin/pip install --no-cache-dir --require-hashes -r ${LOCK}
RUN builder/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY scheduler scheduler
COPY plugins plugins
RUN builder/bin/pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir wheels . \
 && PIP_PYTHON=/opt/custom-scheduler/bin/python builder/bin/pip install --no-cache-dir --no-index --no-deps wheels/*.whl

FROM ${BASE}
ARG BASE
LABEL org.opencontainers.image.base.name=${BASE}
COPY --from=build /opt/custom-scheduler /opt/custom-scheduler
ENV PATH=/opt/custom-scheduler/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["custom-scheduler"]
CMD ["run"]
