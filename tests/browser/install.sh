#!/bin/sh
# Finds the Chromium that tests open pages with, or installs Debian's. Without one those tests are skipped, and fail in CI.
find_browser() {
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

find_browser && exit 0
if command -v apt-get >/dev/null 2>&1; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if [ -z "$as_root" ] || $as_root true 2>/dev/null; then
        echo "Installing Chromium for the tests of the page (once) ..."
        $as_root apt-get update -qq >/dev/null 2>&1
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1
        find_browser && exit 0
    fi
fi
echo "No Chromium found: tests that open the page need one. Install it (Debian: apt-get install chromium)," >&2
echo "or set CHROMIUM to the path of a Chromium or Chrome." >&2
exit 1
