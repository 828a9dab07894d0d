# Each target is one line; what takes more stands in .ci. make help lists them.

FUZZTIME ?= 2m

.PHONY: help test setup lint allocs race build cover fuzz fuzz-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: setup lint allocs race ## check everything: set-up, lint, all tests

setup: ## check for what the tests need; as root on Debian install what is missing
	@.ci/setup

lint: ## gofmt, go vet and staticcheck, of bench too
	@.ci/lint

allocs: ## the tests that count allocations, without the race detector
	go test -vet=off -run Alloc ./...

race: ## all other tests, with the race detector
	go test -vet=off -race ./...

build: ## build bin/pulsegate
	go build -trimpath -o bin/ ./cmd/...

cover: ## write bin/cover.html, which shows what the tests cover
	mkdir -p bin && go test -coverpkg=./... -coverprofile=bin/cover.out ./... && go tool cover -html=bin/cover.out -o bin/cover.html

fuzz: ## run every fuzz target for FUZZTIME, 2m each by default
	@.ci/fuzz $(FUZZTIME)

fuzz-smoke: ## run every fuzz target for a few seconds
	@.ci/fuzz 5s
