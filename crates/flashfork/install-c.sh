#!/bin/sh
# Builds the C library and installs it: headers, shared and static library, pkg-config file, and the library for harnesses of AFL++.
#
#   install-c.sh PREFIX [PROFILE]     PROFILE is a cargo profile, release unless given; DESTDIR as usual
#
# The crate itself is a plain Rust library: programs in Rust that use it need not link these two each time.
set -eu
[ $# -ge 1 ] || { echo "usage: $0 PREFIX [PROFILE]" >&2; exit 2; }
prefix=$1
profile=${2:-release}
here=$(cd "$(dirname "$0")" && pwd)
: "${CARGO:=cargo}" "${CARGO_TARGET_DIR:=$here/../../target}" "${DESTDIR:=}"
export CARGO_TARGET_DIR

cd "$here"
version=$("$CARGO" pkgid | sed 's/.*[#@]//')
# Programs keep working within one such number: the first that isn't 0, and what stands before it.
case $version in
0.*) compatible=${version%.*} ;;
*) compatible=${version%%.*} ;;
esac

echo "Building the C library ($profile), shared and static ..."
"$CARGO" rustc --quiet --lib --profile "$profile" --crate-type cdylib,staticlib -- \
	-C link-arg="-Wl,-soname,libflashfork.so.$compatible"
"$CARGO" build --quiet --lib --profile "$profile" --package flashfork-afl
"$CARGO" build --quiet --example header --profile "$profile"

case $profile in
dev) built=$CARGO_TARGET_DIR/debug ;;
*) built=$CARGO_TARGET_DIR/$profile ;;
esac
lib=$DESTDIR$prefix/lib
"$built/examples/header" >"$built/flashfork.h"
install -D -m 644 -t "$DESTDIR$prefix/include" "$built/flashfork.h" include/flashfork_afl.h ../flashfork-afl/include/flashfork_afl_loop.h
install -D -m 644 -t "$lib" "$built/libflashfork.a" "$built/libflashfork_afl.a"
install -D -m 755 "$built/libflashfork.so" "$lib/libflashfork.so.$version"
ln -sf "libflashfork.so.$version" "$lib/libflashfork.so.$compatible"
ln -sf "libflashfork.so.$compatible" "$lib/libflashfork.so"
mkdir -p "$lib/pkgconfig"
sed "s|@prefix@|$prefix|; s|@version@|$version|" flashfork.pc.in > "$lib/pkgconfig/flashfork.pc"
