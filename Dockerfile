# The image of one broker. `make package` puts this file beside the wheel: docker build -t gnomon dist
ARG PYTHON=3.11
FROM docker.io/library/python:${PYTHON}-slim

COPY gnomon-*.whl /tmp/
RUN python -m pip install --no-cache-dir /tmp/gnomon-*.whl \
    && rm /tmp/gnomon-*.whl \
    && useradd --uid 9092 --no-create-home --shell /usr/sbin/nologin gnomon \
    && install --directory --owner gnomon --mode 0700 /var/lib/gnomon

# All addresses of the container. Kafka clients are sent to localhost:9092, which `-p 9092:9092` maps; other clients need
# another GNOMON_KAFKA__ADVERTISED_LISTENERS, native clients another GNOMON_BROKER__NATIVE_ADVERTISED_HOST.
ENV GNOMON_DATA_DIR=/var/lib/gnomon \
    GNOMON_KAFKA__LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    GNOMON_KAFKA__ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    GNOMON_BROKER__NATIVE_HOST=0.0.0.0 \
    GNOMON_BROKER__NATIVE_ADVERTISED_HOST=localhost \
    GNOMON_BROKER__ADMIN_HOST=0.0.0.0

USER gnomon
VOLUME /var/lib/gnomon
EXPOSE 9092 6650 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/livez', timeout=4)"]
ENTRYPOINT ["gnomon"]
CMD ["standalone"]
