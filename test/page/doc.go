// Package page tests the web page in a headless Chromium. It is a separate module, so that the
// driver of the browser stays out of the service's go.mod.
//
// Without a browser, the tests skip, or fail if REQUIRE_INTEGRATION=1 is set.
// scripts/install-test-deps.sh installs the browser.
package page
