# The image of all of dra-driver's parts: the node daemon (privileged in its DaemonSet), and the commands, which need no
# rights and run as an ordinary user.
#
#   docker build -t dra-driver:0.1.0 .

# nvidia-cdi-hook: what the container runtime runs on the host for every container with a GPU (links, the linker's cache,
# CUDA compatibility). Compiled from NVIDIA's published module, with the hashes of go.sum; linked statically, because the
# daemon puts it on hosts with any C library. It never loads the libraries that the linker's warning is about.
FROM golang:1.26-bookworm AS hook
ARG GOPROXY
WORKDIR /src
COPY deploy/nvidia-cdi-hook/go.mod deploy/nvidia-cdi-hook/go.sum ./
RUN package=github.com/NVIDIA/nvidia-container-toolkit && \
    version=$(go list -mod=readonly -m -f '{{.Version}}' "$package") && \
    CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations' go build -mod=readonly -trimpath -buildvcs=false \
      -tags netgo,osusergo -o /out/nvidia-cdi-hook \
      -ldflags "-s -w -linkmode external -extldflags -static -X $package/internal/info.version=${version#v}" \
      "$package/cmd/nvidia-cdi-hook"

# The program and its dependencies, exactly those of the lock file, in a virtual environment without pip.
FROM python:3.11-slim-bookworm AS build
ARG PIP_INDEX_URL
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/dra-driver
COPY requirements.lock requirements-dev.lock ./
RUN /opt/build/bin/pip --python /opt/dra-driver/bin/python install --disable-pip-version-check --no-cache-dir \
      --no-deps --only-binary :all: --require-hashes -r requirements.lock
# The build backend, with the version and hash that the developers' lock file has.
RUN awk '/^setuptools==/ {on = 1} on {print} on && !/\\$/ {exit}' requirements-dev.lock >backend.lock && \
    /opt/build/bin/pip install --disable-pip-version-check --no-cache-dir --no-deps --require-hashes -r backend.lock
COPY pyproject.toml README.md LICENSE ./
COPY dra_driver dra_driver
COPY examples examples
RUN /opt/build/bin/pip wheel --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . && \
    /opt/build/bin/pip --python /opt/dra-driver/bin/python install --disable-pip-version-check --no-cache-dir \
      --no-deps --no-index dist/*.whl

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="dra-driver" \
      org.opencontainers.image.description="NVIDIA GPUs for Kubernetes' Dynamic Resource Allocation" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base image's own pip is of no use here.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.11/site-packages/pip* \
      /usr/local/lib/python3.11/site-packages/setuptools* /usr/local/lib/python3.11/site-packages/wheel*
# The daemon copies the hook to the host, where the runtime runs it.
COPY --from=hook /out/nvidia-cdi-hook /usr/bin/nvidia-cdi-hook
COPY --from=build /opt/dra-driver /opt/dra-driver
ENV PATH=/opt/dra-driver/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["dra-driver"]
CMD ["--help"]
