# One image per command, with nothing in it but the program:
#
#   docker build --build-arg COMMAND=scheduler -t gpubank/scheduler:v0.1.0 .
#   docker build --build-arg COMMAND=credit-webhook -t gpubank/credit-webhook:v0.1.0 .
#   docker build --build-arg COMMAND=credit-controller -t gpubank/credit-controller:v0.1.0 .
#
# The node agent loads the driver's library, so it is built with cgo and needs a C library in its image:
#
#   docker build --target nvml-exporter -t gpubank/nvml-exporter:v0.1.0 .
FROM golang:1.26-bookworm AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .

FROM source AS nvml-exporter-build
RUN CGO_ENABLED=1 go build -trimpath -ldflags='-s -w' -o /program ./cmd/nvml-exporter

FROM debian:bookworm-slim AS nvml-exporter
COPY --from=nvml-exporter-build /program /nvml-exporter
ENTRYPOINT ["/nvml-exporter"]

FROM source AS build
ARG COMMAND
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /program "./cmd/${COMMAND:?name the command with --build-arg COMMAND=…}"

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /program /program
USER 65532:65532
ENTRYPOINT ["/program"]
