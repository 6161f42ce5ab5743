#!/usr/bin/env bash
# Validate a ggml library's rope against float64, case by case. Without options, npu-rope validate uses the prebuilt
# library that npu_rope's scripts fetch. --ggml-lib FOLDER selects another library. --ggml-device CANN0 selects ggml's
# CANN backend.
set -euo pipefail
command -v npu-rope >/dev/null || { echo "npu-rope is not on the PATH: source .venv/bin/activate" >&2 && exit 2; }
npu-rope validate --suite ggml --backend cpu --filter 'n_dims=64,mode=2,n_ctx=512' --format csv |
  python -c '
import csv, sys
rows = [r for r in csv.DictReader(sys.stdin) if r["backend_name"] == "ggml"]
print(len(rows), "cases on ggml,", sum(r["passed"] == "True" for r in rows), "within their bounds")
'
