# Podium as a server. Nothing secret is in the image: keys of vendors and the password of the
# database come from the environment that it is started in. docs/reference/deployment.md has the rest.

FROM python:3.13-slim AS build
RUN python -m venv /opt/podium
ENV PATH=/opt/podium/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
# What it needs first, by its lock file: a change of Podium's own code leaves this layer as it is.
COPY requirements-serve.lock ./
RUN pip install --require-hashes --requirement requirements-serve.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY lab ./lab
RUN pip install --no-deps .

FROM python:3.13-slim
# libgomp1 is what llama.cpp needs of the system, for models that run on this machine.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 podium \
    && useradd --system --uid 10001 --gid podium --home-dir /var/lib/podium --create-home podium
COPY --from=build /opt/podium /opt/podium
ENV PATH=/opt/podium/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PODIUM_HOME=/var/lib/podium
USER 10001:10001
WORKDIR /var/lib/podium
VOLUME /var/lib/podium
EXPOSE 7755
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7755/healthz', timeout=2)"]
ENTRYPOINT ["podium"]
CMD ["serve", "--host", "0.0.0.0", "--port", "7755", "--keys"]
