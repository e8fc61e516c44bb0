#!/bin/sh
# Builds libtenure_hip_cuda.so: HIP's functions over the CUDA runtime.
#
#   hip/cuda/build.sh [VERSION] [FOLDER]
#
# VERSION  13.0 (default) or 12.8: against NVIDIA's packages from PyPI, fetched once; no CUDA and no GPU needed.
#          local: against the CUDA in $CUDA_HOME (/usr/local/cuda).
# FOLDER   where the library goes: target/cuda-VERSION by default.
#
# Needs gcc, and python3 with pip unless VERSION is local. The runtime is linked in where its package has it as an
# archive (13.0, and every full CUDA); otherwise libcudart is copied beside the library.
set -eu

version=${1:-13.0}
here=$(cd "$(dirname "$0")" && pwd)
out=${2:-$here/../../target/cuda-$version}
packages=${TENURE_CUDA_PACKAGES:-$here/../../target/cuda-packages}/$version
mkdir -p "$out" "$packages"

fetch() {
    for package in "$@"; do
        [ -e "$packages/$package.done" ] && continue
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$packages/wheels" \
            --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 "$package"
        touch "$packages/$package.done"
    done
    for wheel in "$packages"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$packages"
    done
}

case $version in
13.0)
    fetch nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88
    root=$packages/nvidia/cu13
    includes="-isystem $root/include"
    libraries=$root/lib
    ;;
12.8)
    fetch nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-nvcc-cu12==12.8.93
    root=$packages/nvidia
    includes="-isystem $root/cuda_runtime/include -isystem $root/cuda_nvcc/include"
    libraries=$root/cuda_runtime/lib
    ;;
local)
    root=${CUDA_HOME:-/usr/local/cuda}
    includes="-isystem $root/include"
    libraries=$root/lib64
    ;;
*)
    echo "build.sh: no such version: $version (13.0, 12.8 or local)" >&2
    exit 2
    ;;
esac

if [ -e "$libraries/libcudart_static.a" ]; then
    runtime="$libraries/libcudart_static.a -lrt"
else
    shared=$(ls "$libraries"/libcudart.so.* | head -n 1)
    cp "$shared" "$out/"
    runtime="$shared -Wl,-rpath,\$ORIGIN"
fi

# shellcheck disable=SC2086 # the lists are meant to be split
${CC:-gcc} -std=gnu11 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror $includes \
    -o "$out/libtenure_hip_cuda.so" "$here/tenure_hip_cuda.c" \
    $runtime -lpthread -ldl -Wl,--exclude-libs,ALL -Wl,-z,defs
echo "$out/libtenure_hip_cuda.so"
