# Everything on a bare machine: each target makes its own environment with plain python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is written once, at installation: some machines forbid writing it at import, and then every start would compile anew.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export LOOM_SHARED ?= ../shared

.PHONY: demo test test-all lint house fuzz bench scale models table clean
.DEFAULT_GOAL := test

$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[map]'
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/test: $(VENV)/core
	$(PIP) -e '.[embed,map,test,judges,postgres]'
	touch $@

demo: $(VENV)/core
	$(BIN)/loom demo

# Three at once on two cores: some tests wait for a database or another process. Each begins with a third of the files,
# so that few start a server or load a large package, and the first to be idle takes over from the others. Each reads all
# tests first, so what pytest makes of them is kept, also where bytecode is not to be written.
test: $(VENV)/test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

test-all: $(VENV)/test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal -m ''

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# How clear the code is, beside what we want.
house: $(VENV)/test
	$(BIN)/python scripts/house.py --list

fuzz: $(VENV)/test
	LOOM_FUZZ=$${LOOM_FUZZ:-2000} $(BIN)/python -m pytest -n 2 -m '' tests/laws
	$(BIN)/python bench/fuzz.py $${LOOM_TRIPLES:-100000}

bench: $(VENV)/core
	$(BIN)/python bench/read.py
	$(BIN)/python bench/estimate.py
	$(BIN)/python bench/one_shot.py

# A million messages and ten thousand branches, on both databases. Not part of bench: it takes a quarter of an hour.
scale: $(VENV)/test
	$(BIN)/python bench/scale.py

# Refresh the snapshot of model limits and prices; look at what it prints before committing it.
models: $(VENV)/core
	$(BIN)/python scripts/models.py

# Make the table of the static embedder again, from the weights of its model. It takes a quarter of an hour.
table: $(VENV)/test
	$(BIN)/python scripts/embedding_table.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
