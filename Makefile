# Each target is one line; longer scripts are in .ci. make help lists the targets.

FUZZTIME ?= 2m
ROUNDS ?= 10
SECONDS ?= 10
READINGS ?= 30000000
DEVICES ?= 20000
BENCHTIME ?= 200ms
N ?= 100
SEED ?= 0
MINUTES ?= 20
INPUTS ?= 16
# Many tests wait for processes, timeouts and disks, so more of them run in parallel
# than there are processors.
# Linking without data for debuggers takes half of the time.
# On a slow machine fewer run at a time, because others would time out.
ifndef SLOW
export SLOW := $(or $(shell .ci/slow),0)
endif
few = $(if $(filter 1,$(SLOW)),$1,$2)
GOTEST = go test -vet=off -ldflags=-w -timeout 60m -p $(call few,2,3) -parallel $(call few,3,6)
# The packages whose tests take longest start first.
LONG = ./internal/storage/pgstore ./internal/storage/pebblestore ./internal/api/mqtt ./internal/api/ingest ./internal/api/alert
# Without -trimpath, the build cache of one checkout does not serve another.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath
# Tests, benchmarks and builds use what a release contains: a program without cgo. The race
# detector needs cgo.
export CGO_ENABLED := 0
race race-short metamorphic: export CGO_ENABLED = 1
# With cgo, Pebble would compile zstd in C, which a release does not contain.
race race-short metamorphic: GOFLAGS += -tags=pebblegozstd
# Most processes of a test are small and end soon: collecting less garbage saves a tenth of the CPU time.
test: export GOGC = 400
# The race detector waits a second at each exit by default, also in each process that a
# test starts.
race race-short: export GORACE = atexit_sleep_ms=20

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))
ifndef BESIDE
.NOTPARALLEL:
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Three phases at a time keep two processors busy, because many tests wait. The longest begin first,
# so that none of them runs alone at the end. The output of a phase is printed when it has ended. The
# program, without data for debuggers, is linked once for the tests of several modules, while set-up
# waits for downloads.
test: ## check everything: set-up, lint, all tests
	@.ci/setup & setup=$$!; go build -ldflags=-w -o bin/test/ ./cmd/pulsegate; built=$$?; wait $$setup && exit $$built
	@BUILT_PULSEGATE=$(abspath bin/test/pulsegate) $(MAKE) --no-print-directory --jobs=$(call few,2,3) --output-sync=target BESIDE=1 cluster-short plain browser-check race-short docs-short deploy-short gorilla-suite lint-short

test-short: ## go vet and quick tests: a minute, without root and devices
	go vet ./... && $(GOTEST) -short ./...

setup: ## check for programs that the tests need; as root on Debian install missing ones
	@.ci/setup

lint-short: ## what make test does of lint: gofmt, and go vet of the main module; the others have tests only, and hundreds of dependencies to read
	@.ci/lint -short .

lint: ## gofmt, and golangci-lint with .golangci.yml; make bench-smoke does it for bench. The first time compiles it
	@.ci/lint . browser deploy/test docs

# Those of race-short whose names no other test has.
RACED = $$(grep -rhoE '^func Test[A-Za-z0-9_]+' --include='*_test.go' cmd health internal mux reply vitals | sed 's/func //' | sort | uniq -u | grep -Fxf .ci/concurrent.txt | paste -sd '|')

plain: ## all tests without the race detector, except those that try every case, those of race-short, TestCluster and the campaigns of a database that forgets
	$(GOTEST) -skip "Exhaustive|^Test(Cluster|ForgetCampaign|RepairCampaign)\$$|^($(RACED))\$$" ./cmd/pulsegate $(LONG) ./...

cluster-short: ## a fault in a cluster of PostgreSQL, which takes a minute, most of which it waits
	$(GOTEST) -run 'TestCluster$$' ./cmd/pulsegate

exhaustive: ## the tests that try every case, more random calls of stores, and all faults on both lanes; make test does with some of each
	$(GOTEST) -count=1 -run Exhaustive ./...
	$(GOTEST) -count=1 -run 'TestConformance|TestRandom|TestMemory' ./internal/storage/pebblestore ./internal/storage/pgstore ./internal/storage/storetest -rapid.checks 500
	$(GOTEST) -count=1 -skip 'Exhaustive|TestCluster$$' ./cmd/pulsegate -both-lanes

race-short: ## tests that make calls at once, with the race detector, of the packages that most depend on them
	$(GOTEST) -race -short -run "^($$(grep -v '^#' .ci/concurrent.txt | paste -sd '|'))$$" $$(sed -n 's|^# internal/|./internal/|p' .ci/concurrent.txt)

race: setup ## all tests with the race detector but the exhaustive ones and two that measure memory: much longer than make test
	$(GOTEST) -race -timeout 60m -skip 'Exhaustive|^(TestAllocations|TestHostileMemory)$$' ./...

# Go does not see that the program, or a file outside their modules, has changed, and would take
# the results of these tests from its cache.
deploy-check: ## check the image, the manifests, the packages, the release, the dashboard and the alert rules
	cd deploy/test && $(GOTEST) -count=1 ./...

deploy-short: ## what make test does of deploy-check: all but building a Debian package and a release, and rules of alerts that have passed
	cd deploy/test && $(GOTEST) -count=1 -short -skip 'TestDebianPackage$$|TestRelease$$' ./...

browser-check: ## test the page in Chromium
	cd browser && $(GOTEST) -count=1 ./...

screenshots: ## write the images of the page into docs/images
	mkdir -p docs/images && cd browser && go test -count=1 -timeout 10m -run 'TestScreenshots$$' . -images $(abspath docs/images)

bench-page: ## measure the page in Chromium, into docs/page.md
	cd browser && go test -count=1 -timeout 10m -run 'TestMeasure$$' -v . -measure $(abspath docs/page.md)

oidc: ## sign in at Keycloak in Chromium, with the commands of docs/signin.md; some minutes. Needs Java and Maven
	cd browser && go test -count=1 -timeout 30m -run 'TestKeycloak$$' -v . -keycloak

kafka: ## write the changes of a server into Kafka with the command of docs/reading-elsewhere.md; some minutes. Needs Java, Maven and kcat
	cd docs && go test -count=1 -timeout 20m -run 'TestKafka$$' -v ./test -kafka

docs-check: ## check the description of the API and the clients in docs/clients against servers
	cd docs && $(GOTEST) -count=1 ./...

docs-short: ## what make test does of docs-check: some of the ways in which a client of MQTT may publish
	cd docs && $(GOTEST) -count=1 -short ./...

openapi: setup ## send thousands of requests that follow the description, and others; make test sends some
	cd docs && go test -count=1 -timeout 20m -run 'TestSchemathesis$$|TestDescription$$|TestGeneratedClients$$|TestRedocly$$' -v ./test -openapi.cases 1000

conformance: setup ## check more than 1,000 FHIR resources with HL7's validator, into docs/fhir.md; make test checks some, if they are new
	cd docs && go test -count=1 -timeout 20m -run 'TestConformance$$' ./test -conformance.readings 140 -conformance.page $(abspath docs/fhir.md)

build: ## build bin/pulsegate, statically linked and without symbols, as in a release
	go build -buildvcs=auto -ldflags "-s -w" -o bin/ ./cmd/...

module-cost: ## print what each linked module costs in bytes and compile time; some minutes
	@.ci/module-cost

install: build ## install under PREFIX, /usr/local by default, below DESTDIR
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" SYSCONFDIR="$(SYSCONFDIR)" deploy/install

deb: ## build the Debian package into bin, of GOARCH if that is set
	@deploy/package/build

release: ## build the files of release VERSION=1.2.3 into bin/release, reproducibly
	@VERSION="$(VERSION)" deploy/release

release-check: ## build a release of HEAD twice, in two clones, and compare
	@.ci/release

docs: ## write the settings of all commands into docs/configuration.md
	go test -count=1 -timeout 10m -run 'TestReference$$' ./cmd/pulsegate -update

cover: ## write the test coverage to bin/cover.html
	mkdir -p bin && $(GOTEST) -coverpkg=./... -coverprofile=bin/cover.out ./... && go tool cover -html=bin/cover.out -o bin/cover.html

fuzz: ## run each fuzz target for FUZZTIME, 2m by default
	@.ci/fuzz $(FUZZTIME)

fuzz-smoke: ## run every fuzz target for a few seconds
	@.ci/fuzz 5s

fuzz-corpus: ## add inputs found by fuzzing to the corpora, at most INPUTS for each target
	@.ci/fuzz-corpus $(INPUTS)

fuzz-mux: ## compare mux with gorilla/mux on random routes for FUZZTIME
	cd bench && go test ./routers -run '^$$' -fuzz FuzzAgainstGorilla -fuzztime $(FUZZTIME) -fuzzminimizetime 20x -parallel 1 -timeout 0

gorilla-suite: ## run gorilla/mux's own tests against mux
	@.ci/gorilla-suite

crash: setup ## N random faults at random times under random loads of every input, each verified; SEED=… repeats one
	go test -vet=off -count=1 -run 'TestCrashCampaign$$' -v ./cmd/pulsegate -timeout 0 -crash.rounds $(N) -crash.seed $(SEED) $(if $(PAGE),-crash.page $(abspath $(PAGE)))

crash-postgres: setup ## N rounds of faults on servers and PostgreSQL under load, each verified, into bench/results/reliability.txt; SEED=… begins with one
	go test -vet=off -count=1 -run 'TestPostgresCampaign$$' -v ./cmd/pulsegate -timeout 0 -postgres.rounds $(N) -postgres.seed $(SEED) -postgres.page $(abspath bench/results/reliability.txt)

consumers: setup ## ROUNDS in which consumers of changes copy what servers store, in PostgreSQL and in the embedded store, beside faults, into bench/results/reliability.txt; SEED=… repeats one
	go test -vet=off -count=1 -run 'TestConsumerCampaign$$' -v ./cmd/pulsegate -timeout 0 -consumers.rounds $(ROUNDS) -consumers.seed $(SEED) -consumers.page $(abspath bench/results/reliability.txt)

alerts: setup ## ROUNDS of faults with servers and Prometheus Alertmanager, into bench/results/reliability.txt; builds it first; SEED=… begins with one
	@.ci/alertmanager
	go test -vet=off -count=1 -parallel 16 -run 'TestAlertCampaign$$|TestAlertmanagerExample$$' -v ./cmd/pulsegate -timeout 0 -alerts.rounds $(ROUNDS) -alerts.seed $(SEED) \
		-alerts.programs $(abspath bin/tools/alertmanager) -alerts.page $(abspath bench/results/reliability.txt)

tlsfuzzer: ## compare the answers of both lanes to the scripts of tlsfuzzer, of which TLSFUZZER names a checkout
	@.ci/tlsfuzzer "$(TLSFUZZER)"

metamorphic: ## N rounds of concurrent calls on the store, compared with a model, with the race detector; SEED=… repeats one
	go test -race -vet=off -count=1 -run 'TestMetamorphic$$' -v ./internal/storage/pebblestore -timeout 0 -metamorphic.rounds $(N) -metamorphic.seed $(SEED)

soak: setup ## MINUTES of mixed load with faults in between, into bench/results/reliability.txt
	go test -vet=off -count=1 -run 'TestSoak$$' -v ./cmd/pulsegate -timeout 0 -soak.time $(MINUTES)m -soak.rate 2000 -soak.page $(abspath bench/results/reliability.txt)

cluster: setup ## MINUTES of faults in a cluster of PostgreSQL, into bench/results/reliability.txt; or ROUNDS of a KIND in which it forgets: frozen, or async,restored,equal,old,thawed, which REFUSED=1 does without a memory; needs root
ifeq ($(KIND),)
	go test -vet=off -count=1 -run 'TestCluster$$' -v ./cmd/pulsegate -timeout 0 -cluster.time $(MINUTES)m -cluster.page $(abspath bench/results/reliability.txt)
else ifeq ($(KIND),frozen)
	go test -vet=off -count=1 -run 'TestCluster$$' -v ./cmd/pulsegate -timeout 0 -cluster.frozen $(ROUNDS) -cluster.page $(abspath bench/results/reliability.txt)
else
	go test -vet=off -count=1 -run 'Test$(if $(REFUSED),Forget,Repair)Campaign$$' -v ./cmd/pulsegate -timeout 0 -forget.rounds $(ROUNDS) -forget.kind $(KIND) -forget.page $(abspath bench/results/reliability.txt)
endif

vuln: ## check for known vulnerabilities in called code, in vuln.go.dev or a copy: VULNDB=file:///path
	go tool -modfile=tools/go.mod govulncheck $(if $(VULNDB),-db $(VULNDB)) ./...

mutants: ## apply each known mutant: the tests named in it must fail
	@.ci/mutants $(ONLY)

profile: ## load a server and print the cost of a request
	@.ci/profile

bench: ## all microbenchmarks with benchstat, into bench/results
	cd bench && go run ./cmd/bench micro --rounds $(ROUNDS) --time $(BENCHTIME)

bench-ingest: ## load every server in turn: single readings, batches, idle connections, TLS; into bench/results
	cd bench && go run ./cmd/bench ingest --rounds $(ROUNDS) --seconds $(SECONDS) $(if $(PARTS),--parts $(PARTS))

bench-store: ## store READINGS readings of DEVICES devices in each server: CPU, disk, restart, scans; into bench/results
	cd bench && go run ./cmd/bench store --rounds 1 --seconds $(SECONDS) --readings $(READINGS) --devices $(DEVICES) $(if $(PARTS),--parts $(PARTS))

bench-postgres: ## load servers whose store is PostgreSQL: single readings, batches, standbys, two servers, 50 million rows; into bench/results
	cd bench && go run ./cmd/bench postgres --rounds $(ROUNDS) --seconds $(SECONDS) $(if $(ROWS),--rows $(ROWS)) $(if $(PARTS),--parts $(PARTS))

bench-mux: ## compare the routers, into bench/results
	cd bench && go run ./cmd/bench mux --rounds $(ROUNDS) --time $(BENCHTIME)

overload: ## load a server with up to five times its capacity, into bench/results
	cd bench && go run ./cmd/bench overload --rounds $(ROUNDS) --seconds $(SECONDS)

bench-smoke: ## lint and tests of bench, and every benchmark once, answers verified, allocations asserted
	@.ci/lint bench
	@.ci/bench-smoke
