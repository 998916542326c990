# Every target is safe to run on a fresh machine with Go and make: what a target
# needs is built first, cached below .bin/ and rebuilt only when its inputs change.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/.bin
ASSETS := $(if $(KUBEBUILDER_ASSETS),$(KUBEBUILDER_ASSETS),$(BIN)/controlplane)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -X magicstick.dev/operator/handwritten/validate.Version=$(VERSION)
DEV_FLAGS := $(if $(ONCE),--once) $(if $(filter 0 false no,$(STANDINS)),--stand-ins=false) $(if $(FLUX),--flux) $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(if $(PORT),--port "$(PORT)")

# timed NAME,COMMAND runs the command and says how long it took.
define timed
@start=$$SECONDS; echo "==> $(1)"; $(2); status=$$?; \
	echo "==> $(1): $$((SECONDS - start)) s"; exit $$status
endef

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: $(if $(KUBECONFIG),,controlplane) $(if $(FLUX),flux) ## Run everything on this machine. ONCE=1: print the table after convergence and exit. FLUX=1: with the real Flux controllers. STANDINS=0: play neither Flux, KubeAI nor LiteLLM. KUBECONFIG=...: use that cluster. DATA_DIR=...: keep everything in that folder. PORT=...: of the API server.
	@go build -ldflags "$(LDFLAGS)" -o $(BIN)/magicstick ./cmd/magicstick
	@KUBEBUILDER_ASSETS=$(ASSETS) exec $(BIN)/magicstick dev --end-with-parent $(DEV_FLAGS)

.PHONY: build
build: ## Build every command into .bin/.
	go build -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/...

.PHONY: generate
generate: ## Rebuild generated/ from spec/.
	@go run ./tools/specgen generate

.PHONY: verify
verify: ## Fail when generated/ is not what spec/ gives, or an import breaks the direction rule.
	$(call timed,verify,go run ./tools/specgen verify)

.PHONY: roundtrip
roundtrip: ## Prove that the generated types give back the schemas of spec/crds.
	@go run ./tools/specgen roundtrip spec/crds

.PHONY: cost
cost: ## Print the estimated cost of every validation rule.
	@go run ./tools/specgen cost

.PHONY: lint
lint: ## Check style, import direction, API conventions and known vulnerabilities.
	$(call timed,lint,./tools/lint/run)

.PHONY: test
test: ## Run the unit, generator, parity and controller tests, and say how long each part took.
	$(call timed,control plane,go run ./tools/controlplane)
	$(call timed,tests,KUBEBUILDER_ASSETS=$(ASSETS) ./tools/testtimes/run -timeout 15m ./...)

.PHONY: test-peers
test-peers: controlplane peers ## Run the tests against the real Flux controllers and the real Envoy Gateway.
	$(call timed,peer tests,KUBEBUILDER_ASSETS=$(ASSETS) go test -tags peers -timeout 15m ./tools/peers/...)

.PHONY: bench
bench: controlplane ## Run the benchmarks.
	KUBEBUILDER_ASSETS=$(ASSETS) go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-models
bench-models: controlplane ## Resolve and render one model, and put 1000 into service at once, beside controls that only write.
	KUBEBUILDER_ASSETS=$(ASSETS) go test ./handwritten/activations -run '^$$' -bench ResolveAndRender -benchmem
	KUBEBUILDER_ASSETS=$(ASSETS) go test ./handwritten/operator -run '^$$' -bench BenchmarkModels -benchtime 3x -timeout 20m

.PHONY: bench-guard
bench-guard: controlplane ## Send the access guard 1000 checks a second and print p50 and p99 beside an empty handler's.
	KUBEBUILDER_ASSETS=$(ASSETS) go test ./handwritten/adminserver -run '^$$' -bench OpenLoop -benchtime 1x -count 1

.PHONY: bench-publish
bench-publish: ## Publish a model of 16 files, MIB=4096 MiB together, from loopback to loopback, beside what bounds it. BENCH_DIR=...: folder with three times as much room.
	$(if $(BENCH_DIR),BENCH_DIR="$(BENCH_DIR)") BENCH_MIB=$(or $(MIB),4096) go test ./cmd/magicstick -run '^$$' -bench BenchmarkPublish -benchtime 1x -timeout 30m

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-controller-manager and kubectl into .bin/controlplane.
	@go run ./tools/controlplane

.PHONY: peers
peers: ## Build Flux's controllers and Envoy Gateway into .bin/peers.
	@go run ./tools/peers

.PHONY: flux
flux: ## Build Flux's source-controller and kustomize-controller into .bin/peers.
	@go run ./tools/peers source-controller kustomize-controller

.PHONY: clean
clean: ## Remove everything that was built.
	rm -rf $(BIN)
