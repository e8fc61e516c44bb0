#!/bin/sh
# Checks tenure-hip against the real libraries, on a machine without a GPU.
#
#   hip/check-real.sh [CHECK...]
#
# bookworm      HIP 5.2.3, installed by apt (needs root): every call without a device, kernels compiled; then the feature
#               hip-sys: prototypes against its declarations, and the same checks on the linked library
# trixie        HIP 5.7.1 \
# forky         HIP 6.4.3  } unpacked below target/, with the C library they need: the same checks
# experimental  HIP 7.2.4 /
# denied        a user without permission on the device nodes is told so (needs root, and the library of bookworm)
# cuda          hip/cuda compiled for CUDA 12.8 and 13.0 with warnings as errors; every call without a driver
#
# All of them by default. The GPU versions that kernels are compiled for are those that the HIP version knows.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/check-real
mkdir -p "$work"

real() { # VERSION PLATFORM ARCHITECTURES [OPTION...]
    echo "== $1: ${3:-runtime only}"
    version=$1 platform=$2 architectures=$3
    shift 3
    TENURE_TEST_REAL=$platform TENURE_TEST_VERSION=$version TENURE_TEST_ARCHITECTURES=$architectures \
        cargo test --quiet -p tenure-hip --test real "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    # A run that executed nothing has checked nothing.
    grep -E '^test result: ok\. [1-9][0-9]* passed' "$work/log"
}

installed() {
    [ -e /usr/include/hip/hip_runtime_api.h ] || {
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends libamdhip64-dev
    }
    real 5.2 amd "gfx906 gfx90a gfx1030"
    echo "== hip-sys: prototypes and constants"
    HIP_PATH=/usr cargo test --quiet -p tenure-hip --features hip-sys --test abi
    HIP_PATH=/usr real 5.2 amd "gfx90a" --features hip-sys
}

# Nodes that only root may open, in a file system of their own, and a user who is not root.
denied() {
    echo "== denied: device nodes without permission"
    if ! unshare -m true 2>/dev/null; then
        echo "SKIPPED: this machine gives out no mount namespaces"
        return
    fi
    cargo build --quiet -p tenure-hip --example doctor
    open=$(mktemp -d) # where that user may look
    cp "$target/debug/examples/doctor" "$open/"
    chmod -R a+rX "$open"
    unshare -m sh -c '
        mount -t tmpfs tmpfs /dev
        mknod -m 666 /dev/null c 1 3
        mknod -m 600 /dev/kfd c 1 3
        setpriv --reuid 65534 --regid 65534 --clear-groups "$0/doctor"
    ' "$open" >"$work/log" 2>&1 && { cat "$work/log"; exit 1; }
    rm -r "$open"
    grep "^node      /dev/kfd: permission denied" "$work/log" || { cat "$work/log"; exit 1; }
    grep -o "Permission on /dev/kfd is denied: .*" "$work/log" || { cat "$work/log"; exit 1; }
}

# The packages of another release, unpacked: nothing of it is installed.
unpacked() { # SUITE VERSION ARCHITECTURES PACKAGE...
    suite=$1 version=$2 architectures=$3
    shift 3
    folder=$work/$suite
    root=$folder/root/usr/lib/x86_64-linux-gnu
    if [ ! -e "$folder/done" ]; then
        fetch "$@"
        touch "$folder/done"
    fi
    TENURE_TEST_LOADER=$root/ld-linux-x86-64.so.2 TENURE_TEST_LIBRARY_PATH=$root \
        TENURE_HIP_LIBRARY=$(ls "$root"/libamdhip64.so.?) real "$version" amd "$architectures"
}

fetch() {
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/root"
    : >"$folder/status"
    deb="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian"
    echo "$deb $suite main" >"$folder/sources.list"
    [ "$suite" != experimental ] || echo "$deb sid main" >>"$folder/sources.list"
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
            -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o Dir::State::status="$folder/status" \
            -o APT::Install-Recommends=false -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
    }
    apt update
    apt install -y --download-only -t "$suite" "$@" >/dev/null
    for package in "$folder"/cache/archives/*.deb; do
        dpkg -x "$package" "$folder/root"
    done
}

cuda() {
    for version in 12.8 13.0; do
        library=$(TENURE_CUDA_PACKAGES=${TENURE_CUDA_PACKAGES:-$work/cuda} \
            "$here/cuda/build.sh" "$version" "$work/cuda-$version")
        nvrtc=${TENURE_NVRTC_LIBRARY:+sm_90}
        TENURE_HIP_LIBRARY=$library real "CUDA $version" cuda "$nvrtc"
    done
}

[ $# -gt 0 ] || set -- bookworm denied trixie forky experimental cuda
for check in "$@"; do
    case $check in
    bookworm) installed ;;
    denied) denied ;;
    trixie) unpacked trixie 5.7 "gfx90a gfx942 gfx1100" libamdhip64-5 ;;
    forky) unpacked forky 6.4 "gfx90a gfx942 gfx1100" libamdhip64-6 libhiprtc6 ;;
    experimental) unpacked experimental 7.2 "gfx90a gfx942 gfx1100" libamdhip64-7 libhiprtc7 ;;
    cuda) cuda ;;
    *)
        echo "check-real.sh: no such check: $check" >&2
        exit 2
        ;;
    esac
done
echo "all real checks passed"
