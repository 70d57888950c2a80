# The image contains one static binary and certificates, no shell, package manager
# or libc. The binary includes the time zones.
FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie@sha256:eae2aaa6add2936cbf350dd0d2628b363461542f0c4b3c0b558957e0f2997379 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-X github.com/open-leaderboard/leaderboard/internal/cli.release=$VERSION" -o /out/leaderboard ./cmd/leaderboard
RUN mkdir /out/data

FROM scratch
# Certificate authorities, for JWKS over HTTPS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/leaderboard /leaderboard
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV LEADERBOARD_DATA=/data LEADERBOARD_HTTP=0.0.0.0:8080 LEADERBOARD_GRPC=0.0.0.0:50051
VOLUME /data
EXPOSE 8080 50051
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s CMD ["/leaderboard", "health"]
ENTRYPOINT ["/leaderboard"]
CMD ["serve"]
