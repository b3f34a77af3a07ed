# Two commands do everything on a fresh machine:
#   make demo    run the main job on embedded data
#   make test    run the tests
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# One thread per test process: two of them share two cores.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: demo test nightly coverage vision examples docs lint pages results clean

demo: $(READY)
	$(BIN)/dubito demo

test: $(READY) lint
	$(TESTS) -n 2 --dist worksteal

nightly: $(READY)
	$(TESTS) -m nightly

# Every branch of the mathematical modules is taken by some test.
coverage: $(READY)
	mkdir -p build
	$(TESTS) -n 2 --dist worksteal $$($(BIN)/python tools/coverage_lines.py --tests) \
	  --cov=dubito --cov-branch --cov-report=json:build/coverage.json
	$(BIN)/python tools/coverage_lines.py build/coverage.json

# Networks of timm, torchvision and segmentation-models-pytorch, in an environment of their own.
vision: .venv-vision/.ready
	OMP_NUM_THREADS=1 .venv-vision/bin/python -m pytest -q -m vision tests/vision

.venv-vision/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vision
	.venv-vision/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	.venv-vision/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,segmentation]"
	touch .venv-vision/.ready

# The worked examples, those with timm, transformers and Lightning included.
examples: .venv-extra/.ready
	OMP_NUM_THREADS=1 .venv-extra/bin/python -m pytest -q -m "nightly or not nightly" tests/examples

.venv-extra/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-extra
	.venv-extra/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	.venv-extra/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[examples]"
	touch .venv-extra/.ready

# The documentation site, in build/site; a warning is an error.
docs: .venv/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site

.venv/.docs: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch .venv/.docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch is installed first and pinned, so that no other package can pull in a larger build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $(READY)

# Pages that are made from the source and from recorded tests: the stub of the index, the papers page, the scorecard.
pages: $(READY)
	$(BIN)/python tools/index_stub.py
	$(BIN)/python tools/papers_page.py
	$(BIN)/python tools/scorecard.py

# Pages that are made from results/ and nothing else.
results: $(READY)
	$(BIN)/python tools/results_pages.py
	$(BIN)/python tools/segmentation_page.py
	$(BIN)/python tools/temperature_page.py
	$(BIN)/python tools/softmax_page.py

clean:
	rm -rf .venv .venv-vision .venv-extra build dist .mypy_cache .ruff_cache .pytest_cache
