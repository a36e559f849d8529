# Every target creates the environment that it needs; only Python 3.11 or newer is required.
PYTHON ?= python3
VENV := .venv
# An environment of another interpreter is created anew: venv would mix the two.
BUILD := import sys; print(sys.base_prefix, sys.version)
IMAGE ?= custom-scheduler
# The address of the project, which the kubectl plugin and the notes of a release lead to; see CONTRIBUTING.md.
REPOSITORY ?=
# The dependencies in the image; requirements-wasm.lock also supports WebAssembly guests.
LOCK ?= requirements.lock
SBOM ?= sbom.json
BIN := $(VENV)/bin
# Twice as many test processes as processors: many tests wait for processes and leases.
WORKERS = $$($(BIN)/python -c "import os; print(2 * (os.cpu_count() or 1))")
# jsonschema, which kopf imports where kubernetes_validate is installed, would build the parsers of lark for a second: for
# formats of addresses that neither the schemas of Kubernetes nor the contents of the image have.
UNUSED = --no-emit-package=rfc3987-syntax --no-emit-package=lark
# Compiled modules are kept, outside of the tree: the tests start hundreds of processes, and each start would compile them.
# pip compiles none (--no-compile): many of them are never imported.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE
# The theme would recommend its successor on each run.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-python check lint docs docs-serve conformance upstream format bench hostile soak fuzz base-image image sbom release version assets openapi pictures lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/run ## Run the daemon on a simulated cluster (ARGS=--exit to exit by itself)
	@$(BIN)/custom-scheduler demo $(ARGS)

test: $(VENV)/dev ## Run the tests (ARGS='-k name' for some of them)
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-python: ## Run the unit, contract and conformance tests on another interpreter (PYTHON=python3.13)
	@$(MAKE) --no-print-directory test VENV=.venv-$(subst /,-,$(PYTHON)) ARGS="tests/unit tests/contract tests/conformance $(ARGS)"

check: lint ## Format, lint, strict types, the import contract and the documentation site
	@$(BIN)/mkdocs build --strict # with --quiet, warnings would not count

lint: $(VENV)/dev ## Format, lint, strict types and the import contract, without the documentation site
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(VENV)/dev ## Build the documentation site into site/; links and references that lead nowhere are errors
	@$(BIN)/mkdocs build --strict --site-dir site

docs-serve: $(VENV)/dev ## Show the documentation site at http://127.0.0.1:8000, and follow changes
	@$(BIN)/mkdocs serve

format: $(VENV)/dev ## Format the code and fix lint errors
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

conformance: $(VENV)/dev ## Compare the results with those of kube-scheduler, by family
	@$(BIN)/python -m tests.conformance $(ARGS)

upstream: $(VENV)/dev ## Run the tests of kube-scheduler against this scheduler (KUBERNETES=path of a checkout, needs Go; ARGS=--help)
	@$(BIN)/python -m tests.upstream $(KUBERNETES) $(ARGS)

bench: $(VENV)/dev ## Measure decisions and whole pods, at 100, 1000 and 5000 nodes
	@$(BIN)/python -m tests.bench $(ARGS)

base-image: ## Set the base image in the Dockerfile to its present digest (queries its registry by docker buildx)
	@base=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) \
	&& digest=$$(docker buildx imagetools inspect "$$base" --format '{{.Manifest.Digest}}') \
	&& { echo "$$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || { echo "no digest of $$base: $$digest" >&2; exit 1; }; } \
	&& sed -i "s|^ARG BASE=.*|ARG BASE=$$base@$$digest|" Dockerfile \
	&& echo "The base image is $$base@$$digest from now on: commit the Dockerfile"

fuzz: $(VENV)/dev ## Fuzz with generated objects, guided by coverage (ARGS=-max_total_time=600 for ten minutes)
	@$(BIN)/pip install --quiet --disable-pip-version-check atheris==3.0.0
	@$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(VENV)/dev ## Run fault campaigns in virtual time, and count violations of invariants (ARGS='--seeds 501-2000')
	@$(BIN)/python -m tests.faults $(or $(ARGS),--seeds 501-1000)

hostile: $(VENV)/dev ## Run hostile workloads of tenants, and measure the effects on others (ARGS=--help)
	@$(BIN)/python -m tests.hostile $(ARGS)

image: ## Build the container image (needs a Docker engine; IMAGE=name:tag to name it)
	@grep -q '^ARG BASE=.*@sha256:' Dockerfile || $(MAKE) --no-print-directory base-image
	docker build --build-arg LOCK=$(LOCK) -t $(IMAGE) .

sbom: $(VENV)/dev ## Write the contents of the image as CycloneDX, with hashes, to sbom.json
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --validate -o $(SBOM) $(LOCK)

release: $(VENV)/dev ## Build and check all files of a release in dist/VERSION (VERSION=0.2.0 REPOSITORY=address IMAGE=name; IMAGE= leaves the image out)
	@$(BIN)/python -m manifests.release '$(VERSION)' --image='$(IMAGE)' --repository='$(REPOSITORY)'
	@$(BIN)/python -m manifests.release.check 'dist/$(VERSION)'

version: $(VENV)/dev ## Write a version into all its places but the CHANGELOG (VERSION=0.3.0)
	@$(BIN)/python -m manifests.release.versions '$(VERSION)'

assets: ## Download the libraries of the board and of the documentation again, at the versions in this file (needs npm)
	@into=$$(realpath scheduler/tools/board/assets/vendor) && site=$$(realpath docs/assets/vendor) && made=$$(mktemp -d) && cd "$$made" \
	&& for package in preact@11.2.0 htm@3.1.1 uplot@1.6.32 mermaid@11.17.2; do \
	  name=$${package%@*} && mkdir $$name && npm pack --silent $$package >/dev/null && tar xzf $$name-*.tgz -C $$name || exit 1; \
	  { printf '%s\n\n' "$$package"; cat $$name/package/LICENSE; printf '\n\n'; } > $$name/LICENSE; done \
	&& sed '/^\/\/# sourceMappingURL/d' preact/package/dist/preact.mjs > "$$into/preact.js" \
	&& sed '/^\/\/# sourceMappingURL/d; s/from"preact"/from".\/preact.js"/' preact/package/hooks/dist/hooks.mjs > "$$into/hooks.js" \
	&& cp htm/package/dist/htm.mjs "$$into/htm.js" \
	&& cp uplot/package/dist/uPlot.iife.min.js "$$into/uplot.js" \
	&& cp uplot/package/dist/uPlot.min.css "$$into/uplot.css" \
	&& cat preact/LICENSE htm/LICENSE uplot/LICENSE > "$$into/LICENSES.txt" \
	&& cp mermaid/package/dist/mermaid.min.js "$$site/mermaid.js" && cp mermaid/LICENSE "$$site/LICENSES.txt" && rm -rf "$$made"

openapi: $(VENV)/dev ## Write the OpenAPI description of what-if requests to docs/whatif.openapi.json
	@$(BIN)/python -m scheduler.tools.whatif.service.openapi > docs/whatif.openapi.json

pictures: $(VENV)/dev ## Make the pictures of the documentation again, from the pages that they show (needs chromium)
	@PICTURES=docs $(BIN)/pytest -q tests/integration/documents/test_pictures.py

lock: ## Resolve the dependencies again (needs uv)
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 --extra wasm pyproject.toml -c requirements.lock -o requirements-wasm.lock
	uv pip compile --quiet --universal --no-emit-index-url --generate-hashes --python-version 3.11 $(UNUSED) --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	sed -n '/^requires = /s/.*"\(.*\)".*/\1/p' pyproject.toml | uv pip compile --quiet --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 - -o requirements-build.lock

clean: ## Remove the environment and the caches of tools
	rm -rf $(VENV) .venv-* dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# An environment: the dependencies of a lock file, and this package. Three processes install it: two of them half of the
# dependencies each, and they resolve none, since the file has them all.
define environment
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version)'
	@[ "$$($(BIN)/python -c '$(BUILD)' 2> /dev/null)" = "$$($(PYTHON) -c '$(BUILD)')" ] || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the locked dependencies into $(VENV)"
	@awk '/^[a-z]/ { n++ } { print > ("$(VENV)/half" n % 2 ".lock") }' $(1)
	@for part in "--require-hashes -r $(VENV)/half0.lock" "--require-hashes -r $(VENV)/half1.lock" "--editable ."; do \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps $$part & started="$$started $$!"; done; \
	for process in $$started; do wait $$process || failed=1; done; exit $${failed:-0}
	@touch $(2)
endef

$(VENV)/run: requirements.lock pyproject.toml scheduler/version.py
	$(call environment,requirements.lock,$@)

$(VENV)/dev: requirements-dev.lock pyproject.toml scheduler/version.py
	$(call environment,requirements-dev.lock,$(VENV)/run $@)
