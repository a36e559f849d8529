# Every target makes the environment it needs; nothing but Python 3.11 or newer is assumed.
PYTHON ?= python3
VENV := .venv
IMAGE ?= custom-scheduler
# What the image has; requirements-wasm.lock runs WebAssembly guests as well.
LOCK ?= requirements.lock
SBOM ?= sbom.json
BIN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check conformance format bench hostile soak fuzz base-image image sbom board-assets lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/run ## Watch the daemon place pods on a simulated cluster (ARGS=--exit to end by itself)
	@$(BIN)/custom-scheduler demo $(ARGS)

test: $(VENV)/dev ## Run the tests (ARGS='-k name' for some of them)
	@$(BIN)/pytest -n auto --dist worksteal $(ARGS)

check: $(VENV)/dev ## Format, lint, strict types and the import contract
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/dev ## Rewrite the code as `make check` wants it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

conformance: $(VENV)/dev ## Compare with what kube-scheduler says, by family
	@$(BIN)/python -m tests.conformance $(ARGS)

bench: $(VENV)/dev ## What each kind of decision and a whole pod cost, at 100, 1000 and 5000 nodes
	@$(BIN)/python -m tests.bench $(ARGS)

base-image: ## Fix the base image at its digest of today, in the Dockerfile (asks its registry, by docker buildx)
	@base=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) \
	&& digest=$$(docker buildx imagetools inspect "$$base" --format '{{.Manifest.Digest}}') \
	&& { echo "$$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || { echo "no digest of $$base: $$digest" >&2; exit 1; }; } \
	&& sed -i "s|^ARG BASE=.*|ARG BASE=$$base@$$digest|" Dockerfile \
	&& echo "The base image is $$base@$$digest from now on: commit the Dockerfile"

fuzz: $(VENV)/dev ## Try made-up objects, guided by which code they reach (ARGS=-max_total_time=600 for ten minutes)
	@$(BIN)/pip install --quiet --disable-pip-version-check atheris==3.0.0
	@$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(VENV)/dev ## Play storms of faults in virtual time, and count those that broke a promise (ARGS='--seeds 501-2000')
	@$(BIN)/python -m tests.faults $(or $(ARGS),--seeds 501-1000)

hostile: $(VENV)/dev ## Play what tenants may do to a scheduler, and measure what others notice (ARGS=--help)
	@$(BIN)/python -m tests.hostile $(ARGS)

image: ## Build the container image (needs a Docker engine; IMAGE=name:tag to name it)
	@grep -q '^ARG BASE=.*@sha256:' Dockerfile || $(MAKE) --no-print-directory base-image
	docker build --build-arg LOCK=$(LOCK) -t $(IMAGE) .

sbom: $(VENV)/dev ## Write what the image has as CycloneDX, with hashes, into sbom.json
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --validate -o $(SBOM) $(LOCK)

board-assets: ## Fetch what the board's page is made of anew, at the versions named here (needs npm)
	@into=$$(realpath scheduler/board/assets/vendor) && made=$$(mktemp -d) && cd "$$made" \
	&& for package in preact@11.2.0 htm@3.1.1 uplot@1.6.32; do \
	  name=$${package%@*} && mkdir $$name && npm pack --silent $$package >/dev/null && tar xzf $$name-*.tgz -C $$name || exit 1; \
	  { printf '%s\n\n' "$$package"; cat $$name/package/LICENSE; printf '\n\n'; } >> LICENSES.txt; done \
	&& sed '/^\/\/# sourceMappingURL/d' preact/package/dist/preact.mjs > "$$into/preact.js" \
	&& sed '/^\/\/# sourceMappingURL/d; s/from"preact"/from".\/preact.js"/' preact/package/hooks/dist/hooks.mjs > "$$into/hooks.js" \
	&& cp htm/package/dist/htm.mjs "$$into/htm.js" \
	&& cp uplot/package/dist/uPlot.iife.min.js "$$into/uplot.js" \
	&& cp uplot/package/dist/uPlot.min.css "$$into/uplot.css" \
	&& cp LICENSES.txt "$$into/LICENSES.txt" && rm -rf "$$made"

lock: ## Resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 --extra wasm pyproject.toml -c requirements.lock -o requirements-wasm.lock
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	sed -n '/^requires = /s/.*"\(.*\)".*/\1/p' pyproject.toml | uv pip compile --quiet --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 - -o requirements-build.lock

clean: ## Remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# What `make demo` needs: the locked dependencies and this package, nothing more.
$(VENV)/run: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version)'
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/dev: $(VENV)/run requirements-dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
