# Two commands do everything on a fresh machine:
#   make demo    run the main job on embedded data
#   make test    run the tests
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test nightly lint clean

demo: $(READY)
	$(BIN)/dubito demo

test: $(READY) lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

nightly: $(READY)
	$(BIN)/python -m pytest -q -m "nightly"

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

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
