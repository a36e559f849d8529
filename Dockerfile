# The first stage builds the environment from lock files, by hash, with the wheel of the daemon and without the tools. The
# second stage copies it and has no compiler and no pip cache. The container runs as non-root and needs no writable file system.
# `make base-image` appends the present digest to the name, and `make image` does so if there is none. Without a digest the
# name is invalid, so that no build uses the present image of the tag; --build-arg BASE=... sets another base.
ARG BASE=python:3.13-slim@run-make-image
FROM ${BASE} AS build
ARG LOCK=requirements.lock
WORKDIR /src
COPY requirements.lock requirements-wasm.lock requirements-build.lock ./
# The image has no pip: the builder's pip installs into the environment of the image from outside.
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
