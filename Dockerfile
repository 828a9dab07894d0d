# The image of a server. It contains one static program, CA certificates for the
# commands that connect to other servers, and an empty volume: no shell, no package
# manager.
#
#   docker build --build-arg VERSION=1.2.3 -t pulsegate:1.2.3 .
#
# docs/operations.md explains how to run it. deploy/test builds the program with
# the command below and runs it as this file specifies.

# The digest is that of the tag's index for all platforms, from the records of the
# official images' maintainers (docker-library/repo-info, 2026-09-19). The digest
# decides, not the tag; docs/operations.md explains how to update it.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:f4191582e1522dfc5980a6bdc0309a756f9697f3e7d0f199c7e26fc82ab324fd AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
ARG TARGETOS
ARG TARGETARCH
RUN mkdir -p /out/volume && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/pulsegate ./cmd/pulsegate && \
    GOOS=$TARGETOS GOARCH=$TARGETARCH sh deploy/notices >/out/THIRD-PARTY-NOTICES

FROM scratch
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="Pulsegate" \
      org.opencontainers.image.description="Takes vital-sign readings over HTTP and acknowledges what is on stable storage" \
      org.opencontainers.image.source="https://github.com/pulsegate/pulsegate" \
      org.opencontainers.image.documentation="https://github.com/pulsegate/pulsegate/blob/main/docs/operations.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /out/THIRD-PARTY-NOTICES /THIRD-PARTY-NOTICES
COPY --from=build /out/pulsegate /pulsegate
# OpenShift runs containers with a user ID of its choice, in group 0.
COPY --from=build --chown=65532:0 --chmod=0770 /out/volume /var/lib/pulsegate

# On this address the server requires tokens, or an explicit
# PULSEGATE_INSECURE=true. The admin listener stays on loopback unless
# PULSEGATE_ADMIN_ADDR is set.
ENV PULSEGATE_ADDR=0.0.0.0:8080 \
    PULSEGATE_DATA=/var/lib/pulsegate/data \
    PULSEGATE_LOG_FORMAT=json
WORKDIR /var/lib/pulsegate
VOLUME ["/var/lib/pulsegate"]
USER 65532:0
EXPOSE 8080 8883
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=5m --retries=3 \
    CMD ["/pulsegate", "health", "/livez"]
ENTRYPOINT ["/pulsegate"]
CMD ["serve"]
