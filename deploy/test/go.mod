// Checks of what operators run Pulsegate with: the image, the manifests, the
// dashboard and the alert rules. A module of its own, so that no user of Pulsegate
// inherits the libraries that read those:
//
//	cd deploy/test && go test ./...
module github.com/pulsegate/pulsegate/deploy/test

go 1.26.0

require (
	github.com/moby/buildkit v0.31.2
	github.com/moby/patternmatcher v0.6.1
	golang.org/x/sys v0.49.0
)

require (
	github.com/agext/levenshtein v1.2.3 // indirect
	github.com/containerd/typeurl/v2 v2.3.0 // indirect
	github.com/docker/go-units v0.5.0 // indirect
	github.com/moby/docker-image-spec v1.3.1 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	github.com/tonistiigi/go-csvvalue v0.0.0-20240814133006-030d3b2625d0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
